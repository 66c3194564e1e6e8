"""Shrinking: the smallest case with the same failure that can be reached by leaving parts out."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any


def shrink(case: bytes, fails: Callable[[bytes], bool], seconds: float = 8.0) -> bytes:
    """Return a smaller case that still fails, found within some seconds.

    Args:
        case: a case that fails
        fails: whether a case fails in the same way
        seconds: the time to spend

    >>> shrink(b"some long text with an x in it", lambda case: b"x" in case)
    b'x'
    >>> shrink(b'{"a": [1, 2, {"b": "long text"}], "c": 3}', lambda case: b'"b"' in case)
    b'{"a": [{"b": ""}]}'
    """
    end = time.monotonic() + seconds
    try:
        value = json.loads(case)
        is_json = isinstance(value, (dict, list)) and json.loads(json.dumps(value)) == value
    except (RecursionError, ValueError):
        is_json = False
    if seconds <= 0:
        return case
    if is_json and fails(json.dumps(value).encode()):
        return json.dumps(_shrink_value(value, lambda tried: fails(json.dumps(tried).encode()), end)).encode()
    return _shrink_bytes(case, fails, end)


def _shrink_bytes(case: bytes, fails: Callable[[bytes], bool], end: float) -> bytes:
    """Leave out halves, quarters, ... down to single bytes, as long as the case fails."""
    size = len(case) // 2
    while size and time.monotonic() < end:
        place = 0
        while place < len(case) and time.monotonic() < end:
            shorter = case[:place] + case[place + size :]
            if fails(shorter):
                case = shorter
            else:
                place += size
        size //= 2
    return case


def _shrink_value(value: Any, fails: Callable[[Any], bool], end: float) -> Any:
    """Leave out entries and shorten texts and numbers, as long as the value fails."""
    changed = True
    while changed:
        changed = False
        for simpler in _list_simpler(value):
            if time.monotonic() > end:
                return value
            if fails(simpler):
                value, changed = simpler, True
                break
    return value


def _list_simpler(value: Any) -> Iterator[Any]:
    """Yield values that are a step simpler, the simplest first."""
    if isinstance(value, dict):
        for key in value:
            yield {other: value[other] for other in value if other != key}
        for key in value:
            for simpler in _list_simpler(value[key]):
                yield {**value, key: simpler}
    elif isinstance(value, list):
        if len(value) > 3:
            yield value[: len(value) // 2]
            yield value[len(value) // 2 :]
        for i in range(len(value)):
            yield value[:i] + value[i + 1 :]
        for i in range(len(value)):
            for simpler in _list_simpler(value[i]):
                yield [*value[:i], simpler, *value[i + 1 :]]
    elif isinstance(value, str) and value:
        yield ""
        if len(value) > 1:
            yield value[: len(value) // 2]
            yield value[len(value) // 2 :]
        if len(value) < 40:
            for i in range(len(value)):
                yield value[:i] + value[i + 1 :]
    elif isinstance(value, (int, float)) and value not in (0, 1):
        yield 0
        yield 1
