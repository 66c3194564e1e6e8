"""The chapter of spoken words, the second task."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..report import chapter, figures
from ..report import claims as findings
from ..report.chapter import Chapter
from ..report.drawing import PERCENT, percent
from ..report.statistics import best, methods, summarise
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from . import claims as word_findings
from . import figures as word_figures
from . import plan as words
from .corpus import Corpus

TITLES = {
    "errors": "Errors of all runs",
    "confusion": "What the best networks take the words for",
    "modules": "What each module does during a word",
    "curves": "Learning curves",
    "search": "The search of the learning rate",
}


def make(store: Store) -> Chapter | None:
    """The chapter, if the store has runs for it."""
    all_runs, all_searching, corpora = store.records(words.TASK), store.records(words.SEARCH), store.corpora()
    both = [*all_runs, *all_searching]
    if not both:
        return None
    corpus = corpora[_most(all_runs or all_searching)]
    every = [record for record in all_runs if record.run.data == corpus.name]
    search = [record for record in all_searching if record.run.data == corpus.name]
    records, others = chapter.main(every)
    found, unfound = chapter.main(search, rate=False)
    rows, main_rows = summarise(every), summarise(records)
    other_corpora = [
        (other, summarise(record for record in all_runs if record.run.data == name))
        for name, other in corpora.items()
        if name != corpus.name and any(record.run.data == name for record in all_runs)
    ]
    shown = chapter.shown(records)
    claims = word_findings.claims(main_rows)
    reasons = word_findings.reasons(records, main_rows, corpus)
    table = chapter.search_table(found, words.LEARNING_RATES)
    contents = {
        "measure": "error",
        "number": percent,
        "spread": lambda mean, deviation: f"{100 * mean:.1f} ± {100 * deviation:.1f} %",
        "paper": _paper,
        "summary": word_findings.summary(records, main_rows, corpus) if every else [findings.search_summary(search)],
        "claims": claims,
        "reasons": reasons,
        "corpus": corpus,
        "spoken": word_findings.speech(corpus),
        "per_word": _range(Counter(each.word for each in corpus.test).values()),
        "corpora": [each for name, each in corpora.items() if any(record.run.data == name for record in both)],
        "rows": rows,
        "several_settings": any(
            len({(row.method, row.size) for row in each}) < len(each) for _, each in [(corpus, rows), *other_corpora]
        ),
        "others": len(others),
        "other_corpora": other_corpora,
        "shown": shown,
        "search": table,
        "search_others": len(all_searching) - len(search) + len(unfound),
        "settings": chapter.settings(both),
        "example": best(record for record in records if record.status == FINISHED),
        **chapter.lost(both),
    }
    numbers = {
        "counts": chapter.counts(all_runs),
        "search_counts": chapter.counts(all_searching),
        "seconds": chapter.seconds(both),
        "data": corpus.name,
        "rows": [asdict(row) for row in rows],
        "claims": [asdict(claim) for claim in claims],
        "reasons": reasons,
        "confusion": _confusions(records, corpus),
        "search": table,
        "corpora": [_about(each) for each in contents["corpora"]],
        "other_rows": {other.name: [asdict(row) for row in each] for other, each in other_corpora},
    }
    sections = {
        "result": "Result",
        **({"table": "Table", "figures": "Figures"} if every else {}),
        **({"rates": "Learning rates"} if table else {}),
        "lost": "Runs that did not finish",
        "trained": "What was trained",
    }
    return Chapter(
        task=words.TASK,
        title="Spoken words",
        template="words/chapter.html.j2",
        sections=list(sections.items()),
        contents=contents,
        figures=_figures(records, found, corpus, shown),
        titles=TITLES,
        numbers=numbers,
        records=both,
    )


def _most(records: Sequence[Record]) -> str:
    """The corpus that most of the runs learn."""
    counts = Counter(record.run.data for record in records)
    return min(counts, key=lambda name: (-counts[name], name))


def _figures(
    records: Sequence[Record], search: Sequence[Record], corpus: Corpus, shown: Record | None
) -> dict[str, Any]:
    """The figures that these records have something for."""
    found = {}
    if records:
        paper = findings.paper_figures(words.TASK)
        found["errors"] = figures.box_plot(records, paper, PERCENT, together=("srn", "lstm", "cw"))
    if any(record.status == FINISHED for record in records):
        found["confusion"] = word_figures.confusions(records, corpus)
        found["curves"] = word_figures.learning_curves(records)
    if shown is not None:
        found["modules"] = word_figures.hearing(shown, corpus, word_figures.spoken(shown, corpus))
    if search:
        found["search"] = figures.search_curve(search, words.LEARNING_RATES, PERCENT)
    return found


def _confusions(records: Sequence[Record], corpus: Corpus) -> list[dict[str, Any]]:
    """Of the best network of each method, by cluster."""
    found = []
    for method in methods(records):
        record = word_figures.best_of(records, method)
        if record is not None:
            counts = word_figures.confusion(record, corpus)
            found.append(
                {"method": method, "size": record.run.size, "run": record.key, "error": record.error,
                 "clusters": word_figures.by_cluster(counts, corpus).tolist()}
            )  # fmt: skip
    return found


def _about(corpus: Corpus) -> dict[str, Any]:
    return {"name": corpus.name, "source": corpus.source, "synthetic": corpus.synthetic, "words": list(corpus.words),
            "train": len(corpus.train), "test": len(corpus.test), "digest": corpus.digest}  # fmt: skip


def _paper(figure: str) -> str:
    """
    >>> _paper("0.668 ± 0.047")
    '66.8 ± 4.7 %'
    """
    return " ± ".join(f"{100 * float(part):.1f}" for part in figure.split("±")) + " %"


def _range(numbers: Any) -> str:
    """
    >>> [_range([2, 2]), _range([3, 1])]
    ['2', '1 to 3']
    """
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
