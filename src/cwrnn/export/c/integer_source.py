"""An int8 network as C."""

import numpy as np

from .features import render_features
from .integer_plan import IntegerPlan
from .quantisation import TABLE_END, TABLE_STEPS, make_table
from .template_values import collect_values
from .templates import render


def render_integer_network(plan: IntegerPlan, name: str, head: list[str]) -> dict[str, str]:
    """The contents of header and source, by the names of the files.

    Args:
        plan: the network
        name: what every function begins with
        head: the lines of the comment at the top of both files
    """
    model, quantised = plan.model, plan.quantised
    shared = collect_values(plan.plan, name, plan.sums)
    inputs = shared["inputs"].replace("self", "listener")
    values = {
        **shared,
        "plan": plan,
        "quantised": quantised,
        "modules": plan.modules,
        "cell": plan.plan.cell,
        "gates": plan.gates,
        "peepholes": plan.peepholes if plan.plan.peepholes else None,
        "message_offset": _format_message_offset(plan, inputs),
        "biases": plan.biases,
        "drive_biases": plan.drive_biases,
        "scales": plan.scales.tolist(),
        "table": make_table(),
        "table_end": TABLE_END,
        "table_steps": TABLE_STEPS,
        "table_shift": quantised.fraction_bits - int(np.log2(TABLE_STEPS)),
        "readout": quantised.readout,
        "readout_weights": None if quantised.readout is None else plan.readout_weights,
        "input_factors": np.float32(1) / quantised.input_units,
        "output_scale": f"{2.0**-quantised.output_bits!r}f",
        "head": head,
    }
    features = render_features(name, model.features)
    return {
        f"{name}.{kind}": render(f"network_int8.{kind}.j2", **values, features=features[kind]) for kind in ("h", "c")
    }


def _format_message_offset(plan: IntegerPlan, inputs: str) -> str:
    """The place of a module's first message matrix among its weights, as an expression in C."""
    return "0" if plan.model.inputs == 0 and len(plan.model.layers) == 1 else f"rows * {inputs}"
