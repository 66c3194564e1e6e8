"""What clocks do for gated cells: LSTMs and GRUs with clocks and without, beside the SRN and the Clockwork RNN.

The paper has clocks for simple cells only. A page has a section about the others if its store has runs of a method that
the paper does not have.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import paper
from ..networks.methods import METHODS, find_method
from ..sweep.run import Record
from .claims import largest_common, select_finished
from .numbers import join_words
from .statistics import SummaryRow, methods_of

CELL_NAMES = {"tanh": "simple cells", "lstm": "LSTM cells", "gru": "GRU cells"}
"""The cells of the methods, for people to read."""


@dataclass(frozen=True)
class CellRows:
    """The rows of one cell and size: without clocks and with clocks. None where there are no finished runs."""

    cell: str
    """The name of the cell, for people to read."""
    without: SummaryRow | None
    clocked: SummaryRow | None

    @property
    def rows(self) -> list[SummaryRow]:
        """The rows that exist, the one without clocks first."""
        return [row for row in (self.without, self.clocked) if row is not None]


@dataclass(frozen=True)
class GatedSection:
    """The contents of the section."""

    size: int | None
    """The largest size that all methods have; None if they share none, and each has its own largest one."""
    cells: list[CellRows]
    sentences: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the sentences, and the size that they are about, for summary.json."""
        return {"size": self.size, "sentences": self.sentences}


def make_section(
    records: Sequence[Record], rows: Iterable[SummaryRow], compare: Callable[[SummaryRow, SummaryRow], str]
) -> GatedSection | None:
    """Returns the section, or None if there are no runs of a method that the paper does not have.

    Args:
        records: the runs of all methods
        rows: one set of hyper-parameters for each method and size
        compare: returns the errors without clocks and with clocks in a few words
    """
    others = [method for method in methods_of(records) if method in METHODS and method not in paper.METHODS]
    if not others:
        return None
    finished = select_finished(rows)
    size = largest_common(finished)

    def find(cell: str, has_clocks: bool) -> SummaryRow | None:
        name = find_method(cell, has_clocks=has_clocks)
        sizes = [size] if size is not None else sorted(size for method, size in finished if method == name)
        return finished.get((name, sizes[-1])) if sizes else None

    cells = [CellRows(name, find(cell, False), find(cell, True)) for cell, name in CELL_NAMES.items()]
    at = "Largest networks" if size is None else f"{size} parameters"
    sentences = [f"{at}, {each.cell}: {compare(*each.rows)}." for each in cells if len(each.rows) == 2]
    names = join_words([METHODS[method].label for method in others])
    sentences.append(
        f"The paper has no {names}, so their learning rates are ours. A network with gated cells that is too small for "
        "a unit in every module has fewer modules."
    )
    return GatedSection(size, [each for each in cells if each.rows], sentences)
