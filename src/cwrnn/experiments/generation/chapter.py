"""The chapter of sequence generation, the first task."""

import base64
import io
import wave
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..networks.build import METHODS
from ..report import chapter, figures
from ..report import claims as findings
from ..report import statistics as outcomes
from ..report.chapter import Chapter
from ..report.drawing import short
from ..report.statistics import best, box, summarise
from ..sweep.run import FINISHED, Dataset, Record
from ..sweep.store import Store
from . import (
    claims as generation_findings,
)
from . import (
    figures as generation_figures,
)
from . import (
    plan as generation,
)
from . import (
    weight_coding as compression,
)
from .training import LEARNING_RATES

SECONDS = 1.0
"""What a sequence is repeated to, so that it can be heard."""
LOUDNESS = 0.5
"""What samples are multiplied with: room for outputs beyond [-1, 1], and mercy."""

TITLES = {
    "errors": "Errors of all runs",
    "outputs": "Outputs of the best networks",
    "curves": "Learning curves",
    "modules": "What each module does",
    "compression": "The weights as a code",
    "search": "The search of the learning rate",
}


@dataclass(frozen=True)
class Sound:
    """Something to listen to."""

    method: str | None
    """Whose output it is; None for the original."""
    text: str
    uri: str


def make(store: Store) -> Chapter | None:
    """The chapter, if the store has runs for it."""
    every, search, datasets = store.records(generation.TASK), store.records(generation.SEARCH), store.datasets()
    both = [*every, *search]
    if not both:
        return None
    records, others = chapter.main(every)
    found, unfound = chapter.main(search, rate=False)
    rows, main_rows = summarise(every), summarise(records)
    points = compression.measure(records, datasets)
    baselines = compression.baselines(datasets[name] for name in datasets if any(r.run.data == name for r in records))
    shown = chapter.shown(records)
    sounds = _sounds(records, datasets)
    claims = generation_findings.claims(main_rows)
    reasons = generation_findings.reasons(records, main_rows, datasets)
    table = chapter.search_table(found, LEARNING_RATES)
    contents = {
        "measure": "NMSE",
        "number": short,
        "spread": lambda mean, deviation: f"{short(mean)} ± {short(deviation)}",
        "paper": str,
        "summary": generation_findings.summary(records, main_rows) if every else [findings.search_summary(search)],
        "claims": claims,
        "reasons": reasons,
        "rows": rows,
        "several_settings": len({(row.method, row.size) for row in rows}) < len(rows),
        "others": len(others),
        "by_dataset": by_dataset(records, datasets),
        "methods": outcomes.methods(records),
        "datasets": list(datasets.values()),
        "shown": shown,
        "sounds": sounds,
        "seconds": SECONDS,
        "loudness": LOUDNESS,
        "points": points,
        "baselines": baselines,
        "coding": generation_findings.coding(points, baselines),
        "search": table,
        "search_others": len(unfound),
        "settings": chapter.settings(both),
        "example": best(record for record in records if record.status == FINISHED),
        **chapter.lost(both),
    }
    numbers = {
        "counts": chapter.counts(every),
        "search_counts": chapter.counts(search),
        "seconds": chapter.seconds(both),
        "rows": [asdict(row) for row in rows],
        "claims": [asdict(claim) for claim in claims],
        "reasons": reasons,
        "by_dataset": contents["by_dataset"],
        "compression": [asdict(point) for point in points],
        "pcm": [asdict(baseline) for baseline in baselines],
        "search": table,
        "datasets": [
            {"name": d.name, "source": d.source, "rate": d.rate, "samples": len(d.samples), "digest": d.digest}
            for d in datasets.values()
        ],
    }
    sections = {
        "result": "Result",
        **({"table": "Table", "figures": "Figures"} if every else {}),
        **({"sounds": "Sounds"} if sounds else {}),
        **({"code": "Bits per sample"} if points else {}),
        **({"rates": "Learning rates"} if table else {}),
        "lost": "Runs that did not finish",
        "trained": "What was trained",
    }
    return Chapter(
        task=generation.TASK,
        title="Sequence generation",
        template="generation/chapter.html.j2",
        sections=list(sections.items()),
        contents=contents,
        figures=_figures(records, found, datasets, shown, points, baselines),
        titles=TITLES,
        numbers=numbers,
        records=both,
    )


def by_dataset(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[dict[str, Any]]:
    """The median and the best NMSE of every method on every data set, in the largest size that it was run in."""
    found = []
    for method in METHODS:
        mine = [record for record in records if record.run.method == method]
        size = max((record.run.size for record in mine), default=0)
        for name in datasets:
            here = [record for record in mine if (record.run.data, record.run.size) == (name, size)]
            if here:
                drawn = box(here)
                found.append(
                    {"method": method, "size": size, "data": name, "runs": len(here), "diverged": drawn.diverged,
                     "median": drawn.median, "best": drawn.minimum}
                )  # fmt: skip
    return found


def sound(samples: NDArray[Any], rate: int) -> bytes:
    """The samples as a WAV file of 16 bits, repeated to about a second; what is beyond full scale is cut off."""
    repeated = np.tile(samples, max(1, round(SECONDS * rate / len(samples))))
    levels = np.clip(np.round(LOUDNESS * 32767 * repeated), -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(levels.tobytes())
    return file.getvalue()


def _figures(
    records: Sequence[Record],
    search: Sequence[Record],
    datasets: Mapping[str, Dataset],
    shown: Record | None,
    points: Sequence[compression.Point],
    baselines: Sequence[compression.Baseline],
) -> dict[str, Any]:
    """The figures that these records have something for."""
    found = {}
    if records:
        found["errors"] = figures.box_plot(records, findings.paper_figures(generation.TASK))
        found["outputs"] = generation_figures.outputs(records, datasets)
    if any(record.status == FINISHED for record in records):
        found["curves"] = generation_figures.learning_curves(records)
    if shown is not None:
        found["modules"] = generation_figures.activations(shown, datasets[shown.run.data])
    if points:
        found["compression"] = generation_figures.rate_distortion(points, baselines)
    if search:
        found["search"] = figures.search_curve(search, LEARNING_RATES)
    return found


def _sounds(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[tuple[str, list[Sound]]]:
    """By data set: the original, and the output of the best network of each method."""
    found = []
    for name, dataset in datasets.items():
        sounds = [Sound(None, "original", _uri(sound(dataset.samples, dataset.rate)))]
        for method in METHODS:
            mine = (r for r in records if (r.run.method, r.run.data, r.status) == (method, name, FINISHED))
            record = best(mine)
            if record is not None and record.output is not None:
                text = f"{record.run.size} parameters, NMSE {short(record.error)}, run {record.key[:12]}"
                sounds.append(Sound(method, text, _uri(sound(record.output, dataset.rate))))
        if len(sounds) > 1:
            found.append((name, sounds))
    return found


def _uri(wav: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"
