"""Errors that the functions of this package raise. The commands turn them into messages and exit codes."""


class ExperimentError(Exception):
    """The experiment cannot go on. The message says why, and what to do about it."""


class ArgumentError(ValueError):
    """An argument of a function has a value that it cannot use.

    >>> error = ArgumentError("runs", "expected at least 1, got 0")
    >>> str(error), error.argument
    ('runs: expected at least 1, got 0', 'runs')
    """

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument = argument
        """The name of the argument, which is also that of the command's option."""
        self.message = message


class DataError(ArgumentError):
    """Data cannot be read. The message names the file and the reason.

    >>> str(DataError("song.wav: too short"))
    'song.wav: too short'
    """

    def __init__(self, message: str, argument: str = "data") -> None:
        super().__init__(argument, message)

    def __str__(self) -> str:
        # the file says more than the name of the argument
        return self.message if self.argument == "data" else super().__str__()
