"""Judging: what the candidates of a search are worth, by networks that are trained with them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...schedule import Schedule
from ..errors import ExperimentError
from ..progress import ProgressCallback
from ..sweep.driver import Sweep
from ..sweep.run import FAILED, FINISHED, Data, Record, Run
from .evolution import fitness


@dataclass
class Judge:
    """Called with schedules, trains their networks and returns their errors; the store keeps what was trained."""

    sweep: Sweep
    data: Sequence[Data]
    plan: Callable[[Schedule], Sequence[Run]]
    """The networks by which a schedule is judged."""
    progress: ProgressCallback | None = None
    step: str = ""
    """What the progress bar calls it."""
    trained: int = 0
    """Runs of this step that were trained; the others were there."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """What became of the runs of this step: how many of each status."""
    failures: list[Record] = field(default_factory=list)
    """The runs that failed, of all steps."""

    def begin(self, step: str) -> None:
        """Begins a step, in which it may be called once or, if there is nothing new to judge, not at all."""
        self.step, self.trained = step, 0
        self.outcomes.clear()

    def __call__(self, schedules: Sequence[Schedule]) -> list[float]:
        """The error of each schedule."""
        planned = {schedule: self.plan(schedule) for schedule in schedules}
        every = [run for runs in planned.values() for run in runs]
        self.trained = self.sweep.train(self.data, every, activity=self.step, progress=self.progress)
        known = {record.key: record for record in self.sweep.select(every)}
        self.outcomes = Counter(record.status for record in known.values())
        failures = [record for record in known.values() if record.status == FAILED]
        if failures and len(failures) == len(known):
            # it is not the candidates' fault: others would fare no better
            raise ExperimentError(f"every run failed; the first one:\n{failures[0].traceback}")
        self.failures += failures
        return [fitness([known[run.key] for run in runs]) for runs in planned.values()]

    def lost(self) -> str:
        """How many runs of this step came to nothing, in words; empty if none did.

        >>> judge = Judge(None, [], None, outcomes=Counter(finished=20, diverged=3, failed=1))
        >>> judge.lost()
        '3 of 24 runs diverged, 1 of 24 runs failed'
        """
        total = sum(self.outcomes.values())
        return ", ".join(
            f"{number} of {total} runs {status}"
            for status, number in sorted(self.outcomes.items())
            if status != FINISHED
        )
