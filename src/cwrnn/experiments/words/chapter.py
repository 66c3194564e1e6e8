"""The chapter of spoken words, the second task."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from .. import paper
from ..networks.methods import METHODS
from ..report.chapter import (
    Chapter,
    choose_shown,
    count_statuses,
    list_sections,
    list_settings,
    list_unfinished,
    make_overview,
    make_search_table,
    select_main,
    split_by_settings,
    sum_seconds,
)
from ..report.claims import describe_search, paper_errors
from ..report.drawing import PERCENT
from ..report.figures import box_plot, clock_pairs, search_curve
from ..report.gated import make_section
from ..report.numbers import format_percent
from ..report.privacy import hide_folders
from ..report.statistics import best_record, methods_of, summarise
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from . import claims, figures
from .corpus import Corpus
from .task import WORDS

TITLES = {
    "errors": "Errors of all runs",
    "cells": "Errors without clocks and with clocks",
    "modules": "What each module does during a word",
    "confusion": "Which words the best networks confuse",
    "curves": "Learning curves",
    "search": "Search of the learning rate",
}
"""The titles of all figures that the chapter can have, by the names of their files."""


def make_chapter(store: Store) -> Chapter | None:
    """Returns the chapter, or None if the store has no runs of this task."""
    all_runs, all_searching, corpora = store.records(WORDS.name), store.records(WORDS.search_name), store.corpora()
    both = [*all_runs, *all_searching]
    if not both:
        return None
    corpus = corpora[_most_used(all_runs or all_searching)]
    every = [record for record in all_runs if record.run.data == corpus.name]
    search = [record for record in all_searching if record.run.data == corpus.name]
    records, others = split_by_settings(every)
    searching, other_searching = split_by_settings(search, ignore_learning_rate=True)
    rows, main_rows = summarise(every), summarise(records)
    other_corpora = [
        (other, summarise(record for record in all_runs if record.run.data == name))
        for name, other in corpora.items()
        if name != corpus.name and any(record.run.data == name for record in all_runs)
    ]
    shown = choose_shown(records)
    judged = claims.judge_claims(main_rows)
    reasons = claims.explain_failures(records, main_rows, corpus)
    gated = make_section(records, main_rows, claims.compare_clocks)
    table = make_search_table(searching, WORDS.paper_learning_rates)
    contents = {
        "measure": "error",
        "number": format_percent,
        "spread": _format_spread,
        "paper": _format_paper,
        "summary": claims.describe_runs(records, main_rows, corpus) if every else [describe_search(search)],
        "claims": judged,
        "gated": gated,
        "reasons": reasons,
        "smallest_margin": paper.WORDS_SMALLEST_MARGIN,
        "corpus": corpus,
        "speech": claims.describe_speech(corpus),
        "per_word": _format_range(Counter(utterance.word for utterance in corpus.test).values()),
        "corpora": [other for name, other in corpora.items() if any(record.run.data == name for record in both)],
        "rows": rows,
        "several_settings": any(
            len({(row.method, row.size) for row in shown_rows}) < len(shown_rows)
            for shown_rows in (rows, *(other_rows for _, other_rows in other_corpora))
        ),
        "others": len(others),
        "other_corpora": other_corpora,
        "shown": shown,
        "search": table,
        "search_others": len(all_searching) - len(search) + len(other_searching),
        "settings": list_settings(both),
        "example": best_record(record for record in records if record.status == FINISHED),
        **list_unfinished(both),
    }
    numbers = {
        "counts": count_statuses(all_runs),
        "search_counts": count_statuses(all_searching),
        "seconds": sum_seconds(both),
        "data": corpus.name,
        "rows": [asdict(row) for row in rows],
        "claims": [asdict(claim) for claim in judged],
        "gated": None if gated is None else gated.to_dict(),
        "reasons": reasons,
        "confusion": _count_confusions(records, corpus),
        "search": table,
        "corpora": [_describe_corpus(other) for other in contents["corpora"]],
        "other_rows": {other.name: [asdict(row) for row in other_rows] for other, other_rows in other_corpora},
    }
    return Chapter(
        task=WORDS.name,
        title="Spoken words",
        template="words/chapter.html.j2",
        sections=list_sections(has_runs=bool(every), has_claims=bool(judged), has_gated=gated is not None),
        contents=contents,
        figures=_draw_figures(records, searching, corpus, shown),
        titles=TITLES,
        numbers=numbers,
        records=both,
        opening="words/opening.html.j2" if shown is not None else None,
        overview=make_overview(
            "Spoken words", "words not recognised", main_rows, claims.describe_winner(main_rows, corpus),
            _format_spread, _format_paper,
        ),
    )  # fmt: skip


def _most_used(records: Sequence[Record]) -> str:
    """Returns the name of the corpus that most of the runs learn."""
    counts = Counter(record.run.data for record in records)
    return min(counts, key=lambda name: (-counts[name], name))


def _draw_figures(
    records: Sequence[Record], search: Sequence[Record], corpus: Corpus, shown: Record | None
) -> dict[str, Any]:
    """Returns the figures that these records suffice for."""
    drawn = {}
    main = select_main(records)
    if records:
        drawn["errors"] = box_plot(main, paper_errors(WORDS.name), PERCENT, together=list(METHODS))
    if main != records:
        drawn["cells"] = clock_pairs(records, paper_errors(WORDS.name), PERCENT)
    if any(record.status == FINISHED for record in main):
        drawn["confusion"] = figures.confusions(main, corpus)
    if any(record.status == FINISHED for record in records):
        drawn["curves"] = figures.learning_curves(records)
    if shown is not None:
        drawn["modules"] = figures.hearing(shown, corpus, figures.choose_utterance(shown, corpus))
    if search:
        drawn["search"] = search_curve(search, WORDS.paper_learning_rates, PERCENT)
    return drawn


def _count_confusions(records: Sequence[Record], corpus: Corpus) -> list[dict[str, Any]]:
    """Returns the answers of the best network of each method, counted by cluster."""
    networks = []
    for method in methods_of(records):
        record = figures.best_finished(records, method)
        if record is not None:
            counts = figures.count_answers(record, corpus)
            networks.append(
                {"method": method, "size": record.run.size, "run": record.key, "error": record.error,
                 "clusters": figures.group_by_cluster(counts, corpus).tolist()}
            )  # fmt: skip
    return networks


def _describe_corpus(corpus: Corpus) -> dict[str, Any]:
    return {"name": corpus.name, "source": hide_folders(corpus.source), "synthetic": corpus.synthetic,
            "words": list(corpus.words), "train": len(corpus.train), "test": len(corpus.test),
            "digest": corpus.digest}  # fmt: skip


def _format_spread(mean: float, deviation: float) -> str:
    return f"{100 * mean:.1f} ± {100 * deviation:.1f} %"


def _format_paper(text: str) -> str:
    """Returns an error rate of the paper in percent.

    >>> _format_paper("0.668 ± 0.047")
    '66.8 ± 4.7 %'
    """
    mean, deviation = (float(part) for part in text.split("±"))
    return _format_spread(mean, deviation)


def _format_range(numbers: Iterable[int]) -> str:
    """Returns the lowest and the highest number.

    >>> [_format_range([2, 2]), _format_range([3, 1])]
    ['2', '1 to 3']
    """
    values = sorted(numbers)
    low, high = values[0], values[-1]
    return str(low) if low == high else f"{low} to {high}"
