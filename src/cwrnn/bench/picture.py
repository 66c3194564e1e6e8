"""The picture of a benchmark: how many times faster than torch, and how time grows."""

from io import BytesIO
from pathlib import Path
from typing import Any

from ..extras import require
from ..writing import write_files


def draw_picture(record: dict[str, Any], file: Path) -> None:
    """Draws the numbers of all regimes into `file`: how many times faster than torch, and how time grows."""
    matplotlib = require("matplotlib", extra="experiments", purpose="the picture of a benchmark")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    _draw_ratios(left, record)
    _draw_growth(right, record["growth"])
    environment = record["environment"]
    figure.suptitle(
        f"{environment['device']}, {environment['threads']} threads, torch {environment['torch']}, "
        f"kernel {environment['CPU kernel']}",
        fontsize=9,
    )
    picture = BytesIO()
    figure.savefig(picture, format=file.suffix[1:] or None, dpi=130)
    plt.close(figure)
    write_files({file: picture.getvalue()})


def _draw_ratios(axes: Any, record: dict[str, Any]) -> None:
    labels, forward, training = [], [], []
    for row in record["layers"]:
        labels.append(f"{row['n']} units, {row['modules']} modules\n{row['T']} steps, batch {row['B']}")
        forward.append(row["forward_ratio"])
        training.append(row["training_ratio"])
    for row in record["replicas"]:
        labels.append("100 replicas\nof 40 units")
        forward.append(float("nan"))
        training.append(row["ratio"])
    for row in record["step"]:
        labels.append(row["name"].replace(", 8 modules", "").replace(", ", "\n"))
        forward.append(row["ratio"])
        training.append(float("nan"))
    places = range(len(labels))
    for offset, values, label in ((0.2, forward, "forward"), (-0.2, training, "forward + backward")):
        bars = axes.barh([place + offset for place in places], values, height=0.38, label=label)
        axes.bar_label(bars, [f"{value:.0f}" if value == value else "" for value in values], padding=2, fontsize=8)
    axes.set_yticks(list(places), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times faster than torch.nn.RNN (one step: RNNCell)")
    axes.margins(x=0.1)
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title("the same size, side by side")


def _draw_growth(axes: Any, growth: list[dict[str, Any]]) -> None:
    names = {
        "units": "units (8 modules)",
        "modules": "modules of 64 units, with readout",
        "steps": "steps",
        "sequences": "sequences",
    }
    for axis, label in names.items():
        points = [point for point in growth if point["axis"] == axis]
        if points:
            first = points[0]
            axes.plot(
                [point["value"] / first["value"] for point in points],
                [point["training"] / first["training"] for point in points],
                "o-",
                label=label,
            )
    axes.plot([1, 16], [1, 16], color="gray", linewidth=0.8, linestyle="--", label="proportional")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("times more")
    axes.set_ylabel("times longer, forward + backward")
    axes.legend(fontsize=8)
    axes.set_title("how time grows")
