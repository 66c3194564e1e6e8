"""The chapter of sequence generation, the first task."""

import base64
import io
import wave
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from ..report.drawing import NAMES
from ..report.figures import box_plot, clock_pairs, search_curve
from ..report.gated import make_section
from ..report.numbers import format_error
from ..report.privacy import hide_folders
from ..report.statistics import best_record, box, methods_of, summarise
from ..report.svg import inline_figure
from ..sweep.run import FINISHED, Dataset, Record
from ..sweep.store import Store
from . import claims, figures, weight_coding
from .names import MUSIC, choose_wording, readable_name
from .task import GENERATION

SECONDS = 1.0
"""The approximate duration of a sound. Sequences are repeated to this length, so that people can hear them."""
LOUDNESS = 0.5
"""The factor on the samples of sounds: outputs outside of [-1, 1] need room."""

TITLES = {
    "outputs": "What the best networks generate",
    "errors": "Errors of all runs",
    "cells": "Errors without clocks and with clocks",
    "modules": "What each module of a Clockwork RNN does",
    "curves": "Learning curves",
    "compression": "The weights as a code of the music",
    "search": "Search of the learning rate",
}
"""The titles of all figures that the chapter can have, by the names of their files."""


@dataclass(frozen=True)
class Sound:
    """A sound that the page plays."""

    method: str | None
    """The method whose output it is; None for the original."""
    text: str
    label: str
    """The description of the sound, for screen readers."""
    uri: str
    run: str = ""
    """The key of the run; empty for the original."""


@dataclass(frozen=True)
class Card:
    """One picture of the page's opening: the original, or the output of one network."""

    method: str | None
    text: str
    drawing: Any
    """The picture as safe HTML."""
    sound: Sound | None
    """None for a sequence that is no sound."""


def make_chapter(store: Store) -> Chapter | None:
    """Returns the chapter, or None if the store has no runs of this task."""
    every, search, datasets = store.records(GENERATION.name), store.records(GENERATION.search_name), store.datasets()
    both = [*every, *search]
    if not both:
        return None
    records, others = split_by_settings(every)
    searching, other_searching = split_by_settings(search, ignore_learning_rate=True)
    rows, main_rows = summarise(every), summarise(records)
    points = weight_coding.measure(records, datasets)
    baselines = weight_coding.baselines(datasets[name] for name in datasets if any(r.run.data == name for r in records))
    shown = choose_shown(records)
    cells = group_by_dataset(records, datasets)
    opening = choose_opening(cells)
    judged = claims.judge_claims(main_rows)
    wording = choose_wording(datasets.values())
    reasons = claims.explain_failures(records, main_rows, wording)
    gated = make_section(records, main_rows, claims.compare_clocks)
    table = make_search_table(searching, GENERATION.paper_learning_rates)
    contents = {
        "measure": "NMSE",
        "number": format_error,
        "spread": _format_spread,
        "paper": str,
        "summary": claims.describe_runs(records, main_rows) if every else [describe_search(search)],
        "claims": judged,
        "gated": gated,
        "reasons": reasons,
        "rows": rows,
        "several_settings": len({(row.method, row.size) for row in rows}) < len(rows),
        "others": len(others),
        "by_dataset": cells,
        "methods": methods_of(records),
        "datasets": list(datasets.values()),
        "shown": shown,
        "opening": opening,
        "cards": [] if opening is None else _make_cards(select_main(records), datasets[opening]),
        "words": wording,
        "length": _format_lengths(records, datasets),
        "sounds": _make_sounds(records, datasets),
        "seconds": SECONDS,
        "loudness": LOUDNESS,
        "points": points,
        "baselines": baselines,
        "coding": claims.describe_coding(points, baselines),
        "search": table,
        "choice": GENERATION.choice_header,
        "search_others": len(other_searching),
        "settings": list_settings(both),
        "example": best_record(record for record in records if record.status == FINISHED),
        **list_unfinished(both),
    }
    numbers = {
        "counts": count_statuses(every),
        "search_counts": count_statuses(search),
        "seconds": sum_seconds(both),
        "rows": [asdict(row) for row in rows],
        "claims": [asdict(claim) for claim in judged],
        "gated": None if gated is None else gated.to_dict(),
        "reasons": reasons,
        "by_dataset": cells,
        "compression": [asdict(point) for point in points],
        "pcm": [asdict(baseline) for baseline in baselines],
        "search": table,
        "datasets": [
            {"name": d.name, "source": hide_folders(d.source), "rate": d.rate, "samples": len(d.samples),
             "digest": d.digest}
            for d in datasets.values()
        ],
    }  # fmt: skip
    return Chapter(
        task=GENERATION.name,
        title=wording.title,
        template="generation/chapter.html.j2",
        sections=list_sections(has_runs=bool(every), has_claims=bool(judged), has_gated=gated is not None),
        contents=contents,
        figures=_draw_figures(records, searching, datasets, shown, points, baselines),
        titles=TITLES if wording == MUSIC else TITLES | {"compression": "The weights as a code of the sequence"},
        numbers=numbers,
        records=both,
        opening="generation/opening.html.j2" if opening is not None else None,
        overview=make_overview(
            wording.title,
            "mean error (NMSE)",
            main_rows,
            claims.describe_winner(main_rows, wording),
            _format_spread,
            str,
        ),
    )


def group_by_dataset(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[dict[str, Any]]:
    """Returns the median and the best NMSE of every method on every data set, in the method's largest size."""
    cells = []
    for method in ALL_METHODS:
        mine = [record for record in records if record.run.method == method]
        size = max((record.run.size for record in mine), default=0)
        for name in datasets:
            here = [record for record in mine if (record.run.data, record.run.size) == (name, size)]
            if here:
                errors = box(here)
                cells.append(
                    {"method": method, "size": size, "data": name, "runs": len(here), "diverged": errors.diverged,
                     "median": errors.median, "best": errors.minimum}
                )  # fmt: skip
    return cells


def choose_opening(cells: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the name of the data set that opens the page: neither the easiest nor the hardest.

    It is the one with the middle median error of the Clockwork RNN, or of another method if there is none; None if
    no run has finished.
    """
    for method in ("cw", *ALL_METHODS):
        known = [cell for cell in cells if cell["method"] == method and np.isfinite(cell["median"])]
        if known:
            return str(sorted(known, key=lambda cell: (cell["median"], cell["data"]))[(len(known) - 1) // 2]["data"])
    return None


def encode_wav(samples: NDArray[Any], rate: int) -> bytes:
    """Returns the samples as a WAV file of 16 bits, repeated to about a second and clipped at full scale."""
    # the output of a run that diverged may have no finite sample
    finite = np.clip(np.nan_to_num(samples), -4, 4)
    repeated = np.tile(finite, max(1, round(SECONDS * rate / len(samples))))
    levels = np.clip(np.round(LOUDNESS * 32767 * repeated), -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(levels.tobytes())
    return file.getvalue()


def _draw_figures(
    records: Sequence[Record],
    search: Sequence[Record],
    datasets: Mapping[str, Dataset],
    shown: Record | None,
    points: Sequence[weight_coding.Point],
    baselines: Sequence[weight_coding.Baseline],
) -> dict[str, Any]:
    """Returns the figures that these records suffice for."""
    drawn = {}
    main = select_main(records)
    if records:
        drawn["errors"] = box_plot(main, paper_errors(GENERATION.name), together=[m for m in ALL_METHODS if m != "srn"])
        drawn["outputs"] = figures.outputs(main, datasets)
    if main != records:
        drawn["cells"] = clock_pairs(records, paper_errors(GENERATION.name))
    if any(record.status == FINISHED for record in records):
        drawn["curves"] = figures.learning_curves(records)
    if shown is not None:
        drawn["modules"] = figures.activations(shown, datasets[shown.run.data])
    if points:
        shown_methods = methods_of(main)
        drawn["compression"] = figures.rate_distortion([p for p in points if p.method in shown_methods], baselines)
    if search:
        drawn["search"] = search_curve(search, GENERATION.paper_learning_rates)
    return drawn


def _make_cards(records: Sequence[Record], dataset: Dataset) -> list[Card]:
    """Returns the pictures of the opening: the original, and the best network of each method."""
    name = readable_name(dataset.name)
    original = figures.output(dataset)
    cards = [Card(None, "", inline_figure(original, "opening-original", name), _make_original_sound(dataset))]
    for method in methods_of(records):
        record = _best_output(records, method, dataset)
        if record is not None and record.output is not None:
            title = f"{name} as the {NAMES[method]} generates it"
            drawing = inline_figure(figures.output(dataset, record), f"opening-{method}", title)
            cards.append(Card(method, figures.describe_output(record), drawing, _make_sound(record, dataset)))
    return cards


def _make_sounds(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[tuple[str, list[Sound]]]:
    """Returns, by data set, the original and the output of the best network of each method."""
    groups = []
    for name, dataset in datasets.items():
        if not dataset.has_duration:
            continue
        best = [_best_output(records, method, dataset, only_finished=True) for method in ALL_METHODS]
        outputs = [record for record in best if record is not None and record.output is not None]
        sounds = [_make_original_sound(dataset), *(_make_sound(record, dataset) for record in outputs)]
        if outputs:
            groups.append((name, [sound for sound in sounds if sound is not None]))
    return groups


def _best_output(
    records: Sequence[Record], method: str, dataset: Dataset, *, only_finished: bool = False
) -> Record | None:
    return best_record(
        record
        for record in records
        if (record.run.method, record.run.data) == (method, dataset.name)
        and (record.status == FINISHED or not only_finished)
    )


def _make_original_sound(dataset: Dataset) -> Sound | None:
    if not dataset.has_duration:
        return None
    return Sound(
        None, "original", f"{readable_name(dataset.name)}, the original", _encode_sound(dataset.samples, dataset)
    )


def _make_sound(record: Record, dataset: Dataset) -> Sound | None:
    if not dataset.has_duration:
        return None
    assert record.output is not None
    label = f"{readable_name(dataset.name)} as the {NAMES[record.run.method]} generates it"
    uri = _encode_sound(record.output, dataset)
    return Sound(record.run.method, figures.describe_output(record), label, uri, record.key)


def _encode_sound(samples: NDArray[Any], dataset: Dataset) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(encode_wav(samples, dataset.rate)).decode()}"


def _format_spread(mean: float, deviation: float) -> str:
    return f"{format_error(mean)} ± {format_error(deviation)}"


def _format_lengths(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> str:
    """Returns how much the networks learn, such as "7.3 ms of music" or "320 steps"."""
    present = [dataset for name, dataset in datasets.items() if name in {record.run.data for record in records}]
    is_music = choose_wording(present) == MUSIC
    lengths = sorted({round(1000 * len(d.samples) / d.rate, 1) if is_music else len(d.samples) for d in present})
    shown = " to ".join(f"{length:g}" for length in lengths[:: max(1, len(lengths) - 1)])
    return f"{shown} ms of music" if is_music else f"{shown} steps"
