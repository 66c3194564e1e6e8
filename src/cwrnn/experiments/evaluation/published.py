"""Results of other papers on the evaluation tasks, as they print them.

A page shows them beside the runs of a store. They were not made under the same conditions: papers differ in layers,
epochs, regularisation and the permutation of the pixels. We know of no published result of a Clockwork RNN on these
tasks.

    BAI      Bai, Kolter and Koltun, An empirical evaluation of generic convolutional and recurrent networks for
             sequence modeling, 2018: table 1
    CAMPOS   Campos et al., Skip RNN, 2018: table 2, which quotes older papers, too
    GU       Gu, Goel and Ré, Efficiently modeling long sequences with structured state spaces, 2022: the table of
             images as sequences of pixels, which quotes older papers, too
    CORNN    Rusch and Mishra, Coupled oscillatory recurrent neural network, 2021: the authors' repository
    LEM      Rusch et al., Long expressive memory, 2022: the authors' repository
"""

from dataclasses import dataclass

BAI = "Bai et al. 2018, arXiv:1803.01271"
CAMPOS = "Campos et al. 2018, arXiv:1708.06834"
GU = "Gu et al. 2022, arXiv:2111.00396"
CORNN = "Rusch and Mishra 2021, arXiv:2010.00951"
LEM = "Rusch et al. 2022, arXiv:2110.04744"

PERCENT, SHARE, SQUARED, NATS = "accuracy, %", "accuracy", "mean squared error", "cross entropy over all steps"


@dataclass(frozen=True)
class PublishedResult:
    """The result of one network in a paper."""

    task: str
    """The name of the evaluation task."""
    method: str
    """The network, as people call it."""
    value: str
    """The number, as printed; with its deviation where there is one."""
    measure: str
    """What the number is: one of PERCENT, SHARE, SQUARED and NATS."""
    source: str
    """The paper that prints the number, and the paper that it quotes, if any."""
    size: str = ""
    """The parameters or hidden units, where the source gives them."""
    data: str = ""
    """The length or delay, for tasks that have one."""

    @property
    def error(self) -> float | None:
        """The number as the error that this package measures; None if that does not follow from it.

        >>> [find_published("sequential-mnist")[0].error, find_published("copy")[0].error]
        [0.128, None]
        """
        number = float(self.value.partition(" ")[0])
        if self.measure == NATS:
            return None
        # papers print at most four digits
        return round({PERCENT: 1 - number / 100, SHARE: 1 - number, SQUARED: number}[self.measure], 8)


def _quote(paper: str) -> str:
    return f"{paper}, quoted by {GU}"


SEQUENTIAL, PERMUTED = "sequential-mnist", "permuted-mnist"

PUBLISHED: tuple[PublishedResult, ...] = (
    *(
        PublishedResult("adding", method, value, SQUARED, BAI, "70K parameters", "T = 600")
        for method, value in (("LSTM", "0.164"), ("GRU", "5.3e-5"), ("RNN", "0.177"), ("TCN", "5.8e-5"))
    ),
    *(
        PublishedResult("copy", method, value, NATS, BAI, "16K parameters", "T = 1000")
        for method, value in (("LSTM", "0.0204"), ("GRU", "0.0197"), ("RNN", "0.0202"), ("TCN", "3.5e-5"))
    ),
    *(
        PublishedResult(SEQUENTIAL, method, value, PERCENT, BAI, "70K parameters")
        for method, value in (("LSTM", "87.2"), ("GRU", "96.2"), ("RNN", "21.5"), ("TCN", "99.0"))
    ),
    *(
        PublishedResult(SEQUENTIAL, method, value, SHARE, CAMPOS, "110 units")
        for method, value in (
            ("LSTM", "0.910 ± 0.045"),
            ("GRU", "0.968 ± 0.013"),
            ("Skip LSTM", "0.973 ± 0.002"),
            ("Skip GRU", "0.976 ± 0.003"),
        )
    ),
    PublishedResult(SEQUENTIAL, "RNN, tanh", "0.350", SHARE, f"Le et al. 2015, quoted by {CAMPOS}"),
    PublishedResult(SEQUENTIAL, "IRNN", "0.970", SHARE, f"Le et al. 2015, quoted by {CAMPOS}"),
    PublishedResult(SEQUENTIAL, "uRNN", "0.951", SHARE, f"Arjovsky et al. 2016, quoted by {CAMPOS}"),
    PublishedResult(SEQUENTIAL, "LSTM", "98.9", PERCENT, GU),
    PublishedResult(SEQUENTIAL, "Dilated RNN", "98.0", PERCENT, _quote("Chang et al. 2017")),
    PublishedResult(SEQUENTIAL, "Dilated GRU", "99.0", PERCENT, _quote("Chang et al. 2017")),
    PublishedResult(SEQUENTIAL, "IndRNN", "99.0", PERCENT, _quote("Li et al. 2018")),
    PublishedResult(SEQUENTIAL, "coRNN", "99.4", PERCENT, CORNN),
    PublishedResult(SEQUENTIAL, "LEM", "99.5", PERCENT, LEM),
    PublishedResult(SEQUENTIAL, "S4", "99.63", PERCENT, GU),
    *(
        PublishedResult(PERMUTED, method, value, PERCENT, BAI, "70K parameters")
        for method, value in (("LSTM", "85.7"), ("GRU", "87.3"), ("RNN", "25.3"), ("TCN", "97.2"))
    ),
    PublishedResult(PERMUTED, "LSTM", "95.11", PERCENT, GU),
    PublishedResult(PERMUTED, "Dilated RNN", "96.1", PERCENT, _quote("Chang et al. 2017")),
    PublishedResult(PERMUTED, "Dilated GRU", "94.6", PERCENT, _quote("Chang et al. 2017")),
    PublishedResult(PERMUTED, "IndRNN", "96.0", PERCENT, _quote("Li et al. 2018")),
    PublishedResult(PERMUTED, "coRNN", "97.34", PERCENT, CORNN),
    PublishedResult(PERMUTED, "LEM", "96.6", PERCENT, LEM),
    PublishedResult(PERMUTED, "S4", "98.70", PERCENT, GU),
)
"""The results of other papers, by task; within a task by paper."""


def find_published(task: str) -> list[PublishedResult]:
    """Returns the results of other papers on the evaluation task of this name.

    >>> [result.method for result in find_published("adding")]
    ['LSTM', 'GRU', 'RNN', 'TCN']
    """
    return [result for result in PUBLISHED if result.task == task]
