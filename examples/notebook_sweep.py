# %% [markdown]
# # A sweep from a notebook
#
# Networks learn to generate the five bundled snippets of music, as in the paper's first experiment, with few runs and
# few epochs. The cells run in Jupyter (through jupytext), VS Code and Spyder, and the file runs as a script.

# %%
import math
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from cwrnn import Schedule
from cwrnn.experiments import Progress, reproduce_generation

# %% [markdown]
# ## Train
#
# `reproduce_generation` takes the options of `cwrnn reproduce generation` as arguments. It calls `progress` while it
# trains. `workers=1` trains in this process; without it, there is one process per core.

# %%
shown = 0.0


def show(progress: Progress) -> None:
    global shown
    if progress.fraction >= shown:
        print(f"{progress.activity}: {progress.done} of {progress.total} runs, {progress.fraction:.0%}")
        shown += 0.25


result = reproduce_generation(
    methods=["srn", "lstm", "cw"], sizes=[250, 1000], runs=1, epochs=200, workers=1, progress=show
)

# %% [markdown]
# ## Look at the numbers
#
# Printing the result shows the table of the command. Its rows are objects; `pandas.DataFrame(result.to_dict()["rows"])`
# makes a data frame of them.

# %%
print(result)
for row in result.rows:
    print(f"{row.method:<5} {row.parameters:5d} parameters  median NMSE {row.median:.3f}  {row.diverged} diverged")

# %% [markdown]
# ## Sweep something else
#
# Any argument can be swept with a loop. Here it is the schedule of a Clockwork RNN of 40 units.

# %%
schedules = {
    "exponential": Schedule.exponential(40, 9),
    "Fibonacci": Schedule.fibonacci(40, 9),
    "linear": Schedule.linear(40, 9),
}
medians = {}
for name, schedule in schedules.items():
    swept = reproduce_generation(methods=["cw"], schedule=schedule, runs=1, epochs=200, workers=1)
    medians[name] = swept.rows[0].median
    print(f"{name:<12} median NMSE {medians[name]:.3f}")

# %% [markdown]
# ## Draw a figure

# %%
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for method, label in {"srn": "SRN", "lstm": "LSTM", "cw": "CW-RNN"}.items():
    rows = [row for row in result.rows if row.method == method and math.isfinite(row.median)]
    axes.plot([row.parameters for row in rows], [row.median for row in rows], "o-", label=label)
axes.set(xlabel="parameters", ylabel="median NMSE", ylim=(0, 1.1))
axes.legend(frameon=False)
path = Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()) / "sweep.png"
figure.savefig(path, dpi=130)
print(f"The figure is {path}")
