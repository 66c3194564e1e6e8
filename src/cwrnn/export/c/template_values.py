"""The values that the templates of float32 and of int8 programs share."""

from typing import Any

from .plan import Plan


def collect_values(plan: Plan, name: str, sums: int) -> dict[str, Any]:
    """The values by name.

    Args:
        plan: the network in float32, which has the same modules as in int8
        name: what every function begins with
        sums: how many sums the state holds
    """
    layers = len(plan.model.layers)
    return {
        "name": name,
        "NAME": name.upper(),
        "model": plan.model,
        "layers": layers,
        "inputs": f"{name.upper()}_INPUTS" if layers == 1 else "self->inputs",
        "reads_input": layers > 1 or plan.model.inputs > 0,
        "source": "input" if layers == 1 else "self->layer ? state->hidden + self->source : input",
        "size": _choose_size(plan, sums),
    }


def _choose_size(plan: Plan, sums: int) -> str:
    """The type that holds every size and every place of the tables."""
    largest = max(sums, plan.units, *(module.inputs for module in plan.modules))
    return "uint16_t" if largest < 2**16 else "uint32_t"
