"""The hyper-parameters that the trainings of all tasks share."""

from dataclasses import dataclass

from .. import paper


@dataclass(frozen=True)
class TrainingSettings:
    """The hyper-parameters of a run. Each task has a subclass with its own defaults, and fields of its own.

    The names and values of the fields are part of a run's key: changing one makes every run another one.
    """

    learning_rate: float
    """The factor of the gradient."""
    epochs: int
    """The most epochs that a run makes."""
    momentum: float
    modules: int
    """Modules of a network with clocks; the other networks ignore it."""
    peepholes: bool = True
    """Whether an LSTM has peephole connections, from its cells to its gates."""
    forget_bias: float = paper.LSTM_FORGET_BIAS
    """The initial bias of an LSTM's forget gates."""
    deviation: float = paper.WEIGHT_DEVIATION
    """The standard deviation of the initial weights."""
    schedule: str | None = None
    """The modules of a network with clocks, as `Schedule.parse` reads them; None for even ones, periods 1, 2, 4, ..."""

    @property
    def inputs(self) -> int:
        """The features of the input at every time step."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """The outputs of the network at every time step."""
        raise NotImplementedError

    @property
    def usual_epochs(self) -> int:
        """The approximate number of epochs that a run makes, as far as it is known in advance."""
        return self.epochs
