"""The demo: three networks of equally many parameters learn 7 ms of music by heart, and are drawn.

    python -m cwrnn.experiments.demo

The paper's first task, in its largest size (table 1), but one run on one snippet instead of a hundred on each of
five. `main` is train, then show, then write; each of them can be called alone.
"""

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..extras import require
from . import models, music, training


@dataclass(frozen=True)
class Method:
    """One of the paper's three, in its largest size, and what the paper says of it (tables 1 and 3)."""

    kind: str
    name: str
    hidden_size: int
    paper: str
    colour: str


METHODS = (
    Method("srn", "SRN", 31, "0.46 ± 0.08", "#c1553b"),
    Method("lstm", "LSTM", 15, "0.04 ± 0.01", "#b8860b"),
    Method("cw", "CW-RNN", 40, "0.007 ± 0.004", "#1b8a5a"),
)

# section 4.1 of the paper, which does not say whether its LSTM had peepholes; without them it learns far less
STRUCTURE: dict[str, Any] = {"modules": 9, "peepholes": True}

EXAMPLES = """examples:
  python -m cwrnn.experiments.demo
  python -m cwrnn.experiments.demo --epochs 2000            as long as the paper trained
  python -m cwrnn.experiments.demo --snippet 2 --seed 1     another piece of the song, other initial weights
  python -m cwrnn.experiments.demo --out /tmp/demo          pictures and numbers go there
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything has been trained, shown and written; a wrong argument exits with 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        # all that is needed, before a minute is spent on training
        for package in ("matplotlib", "rich", "soundfile"):
            require(package, extra="experiments", purpose="the demo")
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: cannot make the folder {options.out}: {error.strerror}")
    if not os.access(options.out, os.W_OK):
        parser.error(f"argument --out: cannot write into the folder {options.out}")

    name = music.names()[options.snippet - 1]
    target = music.load(name)
    try:
        results = train(target, options.epochs, options.seed)
    except KeyboardInterrupt:
        print("Interrupted: nothing was written.", file=sys.stderr)
        return 130
    settings = {
        "snippet": options.snippet,
        "name": name,
        "steps": len(target),
        "sample_rate": music.SAMPLE_RATE,
        "epochs": options.epochs,
        "seed": options.seed,
        "momentum": training.MOMENTUM,
        **STRUCTURE,
        "cwrnn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
    picture, numbers = options.out / "demo.png", options.out / "demo.json"
    draw(target, results, picture, options.snippet, options.epochs)
    numbers.write_text(json.dumps(record(target, results, settings), indent=1, allow_nan=False) + "\n")
    show(results, options.snippet, options.epochs, options.seed)
    # not by rich, which would break a long path in two
    print(f"\nThe picture is in {picture.resolve()}\nThe numbers are in {numbers.resolve()}")
    return 0


def train(target: NDArray[np.float64], epochs: int, seed: int) -> dict[str, training.Result]:
    """What became of the three networks, by kind; shows how far they are while they learn."""
    rich_progress = require("rich.progress", extra="experiments", purpose="the demo")
    results = {}
    columns = (
        rich_progress.TextColumn("{task.description:<6}"),
        rich_progress.BarColumn(bar_width=28),
        rich_progress.TextColumn("epoch {task.completed:>4.0f}/{task.total:.0f}"),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns) as bars:
        for method in METHODS:
            bar = bars.add_task(method.name, total=epochs)

            def progress(epoch: int, bar: Any = bar) -> None:
                bars.update(bar, completed=epoch)

            settings = training.Settings(training.LEARNING_RATES[method.kind], epochs, **STRUCTURE)
            (results[method.kind],) = training.train_many(
                method.kind, method.hidden_size, target[None], [seed], settings, progress=progress
            )
            # a run that diverged ends early, and must not look as if it went on
            bars.stop_task(bar)
    return results


def show(results: dict[str, training.Result], snippet: int, epochs: int, seed: int) -> None:
    """Prints the table."""
    rich_table = require("rich.table", extra="experiments", purpose="the demo")
    table = rich_table.Table(
        title="Learning 7 ms of music by heart",
        caption=(
            f"Here: one run (seed {seed}) on one snippet ({snippet} of {len(music.names())}), {epochs} epochs. "
            "The paper (table 3): other music, mean and deviation over five sequences and 100 runs of 2000 epochs. "
            "NMSE is the squared error over the variance of the target: 1 is what the mean achieves, 0 is perfect. "
            "So small a network takes what its operations take to call: the seconds say nothing of larger ones."
        ),
        caption_justify="left",
    )
    table.add_column("method")
    for header in ("units", "parameters", "epochs", "seconds", "NMSE", "paper's NMSE"):
        table.add_column(header, justify="right")
    for method in METHODS:
        result = results[method.kind]
        table.add_row(
            method.name,
            str(method.hidden_size),
            str(_parameters(method)),
            str(result.epochs),
            f"{result.seconds:.1f}",
            _short(result.nmse),
            method.paper,
        )
    console = require("rich.console", extra="experiments", purpose="the demo").Console()
    console.print()
    console.print(table)
    for method in METHODS:
        result = results[method.kind]
        if result.status == "diverged":
            console.print(
                f"{method.name} diverged: its loss was not finite after {result.epochs} epochs. "
                f"Its best was an NMSE of {_short(result.best_nmse)}, after {result.best_epoch}."
            )


def draw(
    target: NDArray[np.float64], results: dict[str, training.Result], path: Path, snippet: int, epochs: int
) -> None:
    """Writes the picture, in the manner of the paper's figure of outputs: the target dotted, what was learnt solid."""
    figure_class = require("matplotlib.figure", extra="experiments", purpose="the demo").Figure
    # a Figure of its own draws by Agg and leaves pyplot's state alone
    figure = figure_class(figsize=(9, 7), dpi=150, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    steps = np.arange(len(target))
    panels = figure.subplots(len(METHODS), 1, sharex=True, sharey=True)
    for panel, method in zip(panels, METHODS, strict=True):
        result = results[method.kind]
        parameters = _parameters(method)
        panel.plot(steps, target, linestyle=(0, (1, 1.2)), linewidth=1.5, color="#34495e", label="target")
        if result.status == "diverged":
            outcome = f"diverged after {result.epochs} epochs; drawn: its best, NMSE {_short(result.best_nmse)}"
            panel.plot(steps, result.output, linewidth=1.5, color=method.colour, alpha=0.5, label="output")
        else:
            outcome = f"NMSE {_short(result.nmse)}"
            panel.plot(steps, result.output, linewidth=1.5, color=method.colour, label="output")
        panel.set_title(method.name, loc="left", fontsize=12, fontweight="bold", color=method.colour)
        panel.set_title(outcome, loc="center", fontsize=11)
        panel.set_title(
            f"{method.hidden_size} units, {parameters} parameters", loc="right", fontsize=9, color="#666666"
        )
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#e6e6e6", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.legend(loc="lower right", ncols=2, fontsize=8, frameon=True, framealpha=0.9, edgecolor="none")
    # the target's range and room for the legend, whatever a network that went astray puts out
    panels[0].set_ylim(-1.6, 1.2)
    panels[0].set_yticks([-1, 0, 1])
    panels[0].set_xlim(0, len(target) - 1)
    milliseconds = 1000 * len(target) / music.SAMPLE_RATE
    panels[-1].set_xlabel(
        f"time step ({len(target)} samples of {music.SAMPLE_RATE / 1000:g} kHz: {milliseconds:.1f} ms)"
    )
    figure.suptitle(f"Snippet {snippet}, {epochs} epochs", fontsize=10, color="#666666")
    figure.savefig(path)


def record(
    target: NDArray[np.float64], results: dict[str, training.Result], settings: dict[str, Any]
) -> dict[str, Any]:
    """All settings and numbers, for JSON: a number that is not finite is None."""
    runs = []
    for method in METHODS:
        result = results[method.kind]
        runs.append(
            {
                "method": method.kind,
                "hidden_size": method.hidden_size,
                "parameters": _parameters(method),
                "learning_rate": training.LEARNING_RATES[method.kind],
                "status": result.status,
                "nmse": _finite(result.nmse),
                "best_nmse": _finite(result.best_nmse),
                "best_epoch": result.best_epoch,
                "epochs": result.epochs,
                "seconds": result.seconds,
                "paper_nmse": method.paper,
                "curve": result.curve.tolist(),
                "output": [_finite(value) for value in result.output.tolist()],
            }
        )
    return {"settings": settings, "target": target.tolist(), "runs": runs}


def _parameters(method: Method) -> int:
    return models.parameter_count(method.kind, method.hidden_size, **STRUCTURE)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(nmse: float) -> str:
    """Two digits that matter, or a word where no number is left."""
    if not math.isfinite(nmse):
        return "diverged"
    return f"{nmse:.2g}" if abs(nmse) < 0.1 else f"{nmse:.2f}" if abs(nmse) < 1000 else f"{nmse:.0e}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.experiments.demo",
        description="Trains an SRN, an LSTM and a Clockwork RNN of about 1000 parameters each to generate 320\n"
        "samples of music from no input, the first task of the paper. Prints a table, draws what they learnt.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count = len(music.names())
    parser.add_argument("--snippet", type=_whole(1, count), default=3, metavar="N",
                        help=f"which of the bundled snippets, 1 to {count} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--epochs", type=_whole(1), default=1000, metavar="E",
                        help="updates of each network (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=_whole(0, 2**63 - 1), default=0, metavar="S",
                        help="of the initial weights (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR",
                        help="where demo.png and demo.json go; made if missing (default: %(default)s)")  # fmt: skip
    return parser


def _whole(low: int, high: int | None = None) -> Any:
    """What reads a whole number from `low` to `high`."""
    expected = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return read


if __name__ == "__main__":
    sys.exit(main())
