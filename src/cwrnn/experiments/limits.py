"""Limits: the largest values of arguments that count something, and the check that names the argument.

A value above its limit would train for years, or fill the memory before the training begins.
"""

import operator

from .errors import ArgumentError

LARGEST_SIZE = 10**9
"""The most parameters of a network. A store could not hold a much larger number."""
LARGEST_SEED = 2**62
"""The largest seed of a first run: a store holds integers below 2^63, and the next runs count from there."""
LARGEST_MODULES = 1024
"""The most modules of a network."""
LARGEST_RUNS = 100_000
"""The most initial weights for each network and data set."""
LARGEST_DRAWS = 1000
"""The most draws of speakers, each of which is a corpus of its own in the store."""
LARGEST_PLAN = 200_000
"""The most runs of a sweep, all methods, sizes and data sets together: a million takes seconds to plan alone."""
LARGEST_EPOCHS = 10_000_000
"""The most epochs of a run, which keeps the loss of each until it ends."""
LARGEST_LENGTH = 10_000_000
"""The most samples of a sequence."""
LARGEST_WORKERS = 1024
"""The most processes that train on one machine."""
LARGEST_GENERATIONS = LARGEST_POPULATION = 10_000
"""The most generations of a search, and the most candidates in each."""


def check_count(argument: str, value: int, most: int, *, least: int = 1) -> int:
    """Returns `value` as a plain integer; raises an ArgumentError unless it is one between `least` and `most`.

    >>> check_count("runs", 3, LARGEST_RUNS)
    3
    >>> check_count("runs", 10**30, LARGEST_RUNS)
    Traceback (most recent call last):
        ...
    cwrnn.experiments.errors.ArgumentError: runs: expected at most 100000, got 1000000000000000000000000000000
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ArgumentError(argument, f"expected an integer, got {value!r}") from error
    if number < least:
        raise ArgumentError(argument, f"expected at least {least}, got {number}")
    if number > most:
        raise ArgumentError(argument, f"expected at most {most}, got {number}")
    return number


def check_plan(count: int) -> None:
    """Raises an ArgumentError if a sweep would have too many runs."""
    if count > LARGEST_PLAN:
        raise ArgumentError(
            "runs", f"expected at most {LARGEST_PLAN} runs in all, got {count}, all networks and data sets together"
        )
