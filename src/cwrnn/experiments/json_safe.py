"""Values for JSON, which has neither NaN nor infinity."""

import math
from collections.abc import Mapping
from typing import Any


def make_json_safe(value: Any) -> Any:
    """`value` with None for every number that is not finite, and lists for tuples.

    >>> make_json_safe({"errors": (0.5, float("nan"))})
    {'errors': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: make_json_safe(item) for name, item in value.items()}
    return [make_json_safe(item) for item in value] if isinstance(value, (list, tuple)) else value
