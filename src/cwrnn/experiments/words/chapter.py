"""The chapter of spoken words, the second task."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .. import paper
from ..networks.methods import ALL_METHODS
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
from ..report.draws import SIGNIFICANT, DrawSummary
from ..report.figures import box_plot, clock_pairs, draw_spread, search_curve
from ..report.gated import make_section
from ..report.numbers import format_percent
from ..report.privacy import hide_folders
from ..report.statistics import SummaryRow, best_record, methods_of, summarise
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from . import claims, figures
from .corpus import Corpus
from .task import WORDS

TITLES = {
    "errors": "Errors of all runs",
    "draws": "Errors of every draw of the speakers",
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
    drawn = _most_used(all_runs or all_searching, corpora)
    corpus = drawn[0]
    names = {each.name for each in drawn}
    every = [record for record in all_runs if record.run.data in names]
    search = [record for record in all_searching if record.run.data in names]
    records, others = split_by_settings(every)
    searching, other_searching = split_by_settings(search, ignore_learning_rate=True)
    rows, main_rows = summarise(every), summarise(records)
    other_corpora = _summarise_others(all_runs, corpora, corpus.pool)
    # the words of one draw: those of the others are by other speakers
    of_corpus = [record for record in records if record.run.data == corpus.name]
    shown = choose_shown(of_corpus)
    draws = WORDS.summarise_draws(records, drawn)
    judged = claims.judge_claims(main_rows, draws)
    reasons = claims.explain_failures(records, main_rows, corpus)
    gated = make_section(records, main_rows, claims.compare_clocks)
    table = make_search_table(searching, WORDS.paper_learning_rates)
    contents = {
        "measure": "error",
        "number": format_percent,
        "spread": _format_spread,
        "paper": _format_paper,
        "summary": claims.describe_runs(records, main_rows, corpus, draws) if every else [describe_search(search)],
        "claims": judged,
        "gated": gated,
        "reasons": reasons,
        "smallest_margin": paper.WORDS_SMALLEST_MARGIN,
        "draws": draws,
        "significant": SIGNIFICANT,
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
        "choice": WORDS.choice_header,
        "search_others": len(all_searching) - len(search) + len(other_searching),
        "settings": list_settings(both),
        "example": best_record(record for record in records if record.status == FINISHED),
        **list_unfinished(both),
    }
    numbers = {
        "counts": count_statuses(all_runs),
        "search_counts": count_statuses(all_searching),
        "seconds": sum_seconds(both),
        "data": corpus.pool,
        "rows": [asdict(row) for row in rows],
        "claims": [asdict(claim) for claim in judged],
        "draws": None if draws is None else draws.to_dict(),
        "gated": None if gated is None else gated.to_dict(),
        "reasons": reasons,
        "confusion": _count_confusions(of_corpus, corpus),
        "search": table,
        "corpora": [_describe_corpus(other) for other in contents["corpora"]],
        "other_rows": {other.name: [asdict(row) for row in other_rows] for other, other_rows in other_corpora},
    }
    return Chapter(
        task=WORDS.name,
        title="Spoken words",
        template="words/chapter.html.j2",
        sections=_list_sections(bool(every), bool(judged), gated is not None, draws is not None),
        contents=contents,
        figures=_draw_figures(records, searching, corpus, shown, draws),
        titles=TITLES,
        numbers=numbers,
        records=both,
        opening="words/opening.html.j2" if shown is not None else None,
        overview=make_overview(
            "Spoken words", "words not recognised", main_rows, claims.describe_winner(main_rows, corpus),
            _format_spread, _format_paper,
        ),
    )  # fmt: skip


def _most_used(records: Sequence[Record], corpora: Mapping[str, Corpus]) -> list[Corpus]:
    """Returns the corpus that most of the runs learn, or all draws of it that have runs, by their seeds."""
    counts = Counter(corpora[record.run.data].pool for record in records)
    pool = min(counts, key=lambda name: (-counts[name], name))
    used = {record.run.data for record in records}
    drawn = [corpus for name, corpus in corpora.items() if corpus.pool == pool and name in used]
    return sorted(drawn, key=lambda corpus: corpus.draw)


def _summarise_others(
    records: Sequence[Record], corpora: Mapping[str, Corpus], pool: str
) -> list[tuple[Corpus, list[SummaryRow]]]:
    """Returns the rows of the other corpora that have runs, with all draws of a corpus together."""
    others: dict[str, list[Record]] = {}
    for record in records:
        others.setdefault(corpora[record.run.data].pool, []).append(record)
    # in the order in which the corpora were added
    names = dict.fromkeys(corpus.pool for corpus in corpora.values())
    return [
        (_most_used(others[name], corpora)[0], summarise(others[name]))
        for name in names
        if name in others and name != pool
    ]


def _list_sections(has_runs: bool, has_claims: bool, has_gated: bool, has_draws: bool) -> list[tuple[str, str]]:
    """Returns the anchors and titles of the sections; that of the draws comes before the claims."""
    sections = list_sections(has_runs=has_runs, has_claims=has_claims, has_gated=has_gated)
    return [*sections[:2], *([("draws", "Draws of the speakers")] if has_draws else []), *sections[2:]]


def _draw_figures(
    records: Sequence[Record],
    search: Sequence[Record],
    corpus: Corpus,
    shown: Record | None,
    draws: DrawSummary | None,
) -> dict[str, Any]:
    """Returns the figures that these records suffice for."""
    drawn = {}
    main = select_main(records)
    if records:
        drawn["errors"] = box_plot(
            main, paper_errors(WORDS.name), PERCENT, together=list(ALL_METHODS), has_draws=draws is not None
        )
    if draws is not None and draws.rows:
        drawn["draws"] = draw_spread(main, draws, PERCENT)
    if main != records:
        drawn["cells"] = clock_pairs(records, paper_errors(WORDS.name), PERCENT)
    of_corpus = [record for record in main if record.run.data == corpus.name]
    if any(record.status == FINISHED for record in of_corpus):
        drawn["confusion"] = figures.confusions(of_corpus, corpus)
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
