"""An int8 network as C."""

import numpy as np

from .features import render_features
from .integer_plan import IntegerPlan
from .quantisation import TABLE_END, TABLE_STEPS, make_table
from .templates import render


def render_integer_network(plan: IntegerPlan, name: str, head: list[str]) -> dict[str, str]:
    """The contents of header and source, by the names of the files.

    Args:
        plan: the network
        name: what every function begins with
        head: the lines of the comment at the top of both files
    """
    model, quantised = plan.model, plan.quantised
    layers = len(model.layers)
    inputs = f"{name.upper()}_INPUTS" if layers == 1 else "self->inputs"
    values = {
        "name": name,
        "NAME": name.upper(),
        "model": model,
        "plan": plan,
        "quantised": quantised,
        "modules": plan.modules,
        "cell": plan.plan.cell,
        "gates": plan.gates,
        "layers": layers,
        "peepholes": plan.peepholes if plan.plan.peepholes else None,
        "inputs": inputs,
        "reads_input": layers > 1 or model.inputs > 0,
        "source": "input" if layers == 1 else "self->layer ? state->hidden + self->source : input",
        "message_offset": _format_message_offset(plan, inputs.replace("self", "listener")),
        "size": _choose_size(plan),
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


def _choose_size(plan: IntegerPlan) -> str:
    """The type that holds every size and every place of the tables."""
    largest = max(plan.sums, plan.plan.units, *(module.inputs for module in plan.modules))
    return "uint16_t" if largest < 2**16 else "uint32_t"
