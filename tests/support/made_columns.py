"""Tables and columns that networks can learn in a second."""

import numpy as np

from cwrnn.experiments.regression.columns import Columns, read_columns
from cwrnn.experiments.tables import Table


def make_table(rows=200, seed=0, name="town") -> Table:
    """Return a table whose column y follows x with a delay, beside a column without use and one of text."""
    random = np.random.default_rng(seed)
    x, noise = random.standard_normal((2, rows))
    y = 3 + 2 * (0.6 * x + 0.4 * np.roll(x, 1))
    return Table.from_columns({"x": x, "noise": noise, "y": y, "time": np.array(["now"] * rows)}, name)


def make_columns(rows=200, length=10, seed=0, name="town") -> Columns:
    """Return the columns x and noise, and the target y."""
    return read_columns(make_table(rows, seed, name), inputs=["x", "noise"], target="y", length=length)
