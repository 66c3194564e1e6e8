"""Schedules: their text form, their constructors, and every form that a layer takes."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cwrnn import Schedule

from ..door import Door, require
from ..mutation import INTEGERS, NUMBERS, TEXTS, mutate_text

SPECS = ("1:1", "1:4,2:4", "1:3,2:3,4:2,8:2", "3:1,1:2,3:5", "1099511627776:1", "1:40,2:30,4:20,8:10")
CONSTRUCTORS = ("Schedule", "resolve", "from_periods", "exponential", "linear", "fibonacci", "logarithmic", "random",
                "from_spectrum")  # fmt: skip
MOST_UNITS = 3000
"""No mask is made for more units: it has so many squared elements."""


def make_text_case(random: Random) -> bytes:
    """Return the text form of a schedule with a few changes."""
    text = random.choice(SPECS)
    if random.random() < 0.3:
        count = random.choice((1, 2, 50, 5000))
        text = ",".join(f"{random.choice(INTEGERS)}:{random.choice(INTEGERS)}" for _ in range(count))
    return mutate_text(random, text).encode("utf-8", "surrogatepass")


def parse_text(case: bytes, folder: Path) -> None:
    """Parse the text, and use the schedule."""
    check_schedule(Schedule.parse(case.decode("utf-8", "surrogatepass")))


def make_value(random: Random, depth: int = 0) -> Any:
    """Return a hostile argument, in a form that JSON can hold; `build_value` makes the value of it."""
    kind = random.randrange(12)
    if kind <= 4:
        return random.choice((1, 2, 3, 4, 8, 16, 100))
    if kind == 5:
        return random.choice(INTEGERS) * random.choice((1, -1))
    if kind == 6:
        return {
            "float": random.choice(("nan", "inf", "-inf", "0.5", "1.5", "2.0", "1.0000001", "1e300", "-1", "1e-320"))
        }
    if kind == 7:
        return random.choice((None, True, False, *TEXTS[:20], *NUMBERS[:20], *SPECS))
    if kind == 8:
        return {random.choice(("int8", "int64", "uint64", "float32", "bool_")): random.choice((0, 1, 2, 100))}
    if kind == 9:
        return {"range": random.choice(([3], [1, 5], [0, 10, 3], [5, 1], [1, 2000]))}
    if kind == 10:
        return random.choice(
            ({"bytes": "1:1"}, {"set": [1, 2]}, {"dict": [[1, 2]]}, {"array": [1, 2, 4]}, {"array": [[1, 2]]})
        )
    return [make_value(random, depth + 1) for _ in range(random.choice((0, 1, 2, 3, 40)))] if depth < 2 else []


def build_value(value: Any) -> Any:
    """Return the value that a description of `make_value` stands for."""
    if isinstance(value, list):
        return [build_value(part) for part in value]
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(kind, inner)] = value.items()
    if kind == "float":
        return float(inner)
    if kind == "range":
        return range(*inner)
    if kind == "bytes":
        return str(inner).encode()
    if kind in ("set", "dict"):
        return {"set": set, "dict": dict}[kind](inner)
    if kind == "array":
        return np.asarray(inner)
    return getattr(np, kind)(inner)


def make_call_case(random: Random) -> bytes:
    """Return a constructor and its arguments as JSON."""
    name = random.choice(CONSTRUCTORS)
    arguments = [make_value(random) for _ in range(random.choice((1, 2, 2, 2, 3, 3, 4)))]
    if name in ("exponential", "linear", "fibonacci", "logarithmic", "random") and random.random() < 0.7:
        units = random.choice((8, 100, 10**4, 10**6, 2**40, 2**63))
        arguments[:2] = [units, random.choice((1, 2, 8, 41, 42, 64, 1000, units))]
    if name == "from_spectrum":
        arguments[0] = random.choice(
            ([0.0, 1.0] * 40, [[1, 2]] * 40, [], [{"float": "nan"}] * 40, [0] * 64, [1e300, -1e300] * 32)
        )
    return json.dumps({"call": name, "arguments": arguments}).encode()


def call_constructor(case: bytes, folder: Path) -> None:
    """Call the constructor with the arguments, and use the schedule."""
    request = json.loads(case)
    name = request.get("call")
    if name in CONSTRUCTORS:
        arguments = [build_value(argument) for argument in request.get("arguments", [])]
        check_schedule((Schedule if name == "Schedule" else getattr(Schedule, name))(*arguments))


def check_schedule(schedule: Schedule) -> None:
    """Use a schedule in all ways that need no layer."""
    require(Schedule.parse(schedule.spec) == schedule, "its text form is another schedule")
    require(
        schedule.hidden_size == sum(schedule.sizes) and schedule.modules == len(schedule.sizes), "sizes do not add up"
    )
    require(all(map(math.isfinite, schedule.operations())), "operations that are not finite")
    str(schedule), repr(schedule), hash(schedule)
    schedule.recurrent_parameter_count(), schedule.parameter_count(3, 2), schedule.due(12), schedule.ticks(5, 20)
    if schedule.hidden_size <= MOST_UNITS:
        require(schedule.mask().sum() == schedule.recurrent_parameter_count(), "mask and count differ")


ERRORS = (ValueError, TypeError)
DOORS = (
    Door("schedule-text", "Schedule.parse", (ValueError,), make_text_case, parse_text),
    Door("schedule", "the constructors of Schedule", ERRORS, make_call_case, call_constructor),
)
