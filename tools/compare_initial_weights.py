"""Trains a CW-RNN on permuted MNIST from orthogonal and from torch's initial weights, and prints the validation errors.

Orthogonal are the recurrent weights of each module to itself (`cwrnn.init.orthogonal_`), the default of
`cwrnn evaluate`. Everything else is equal: 70,000 parameters, the periods 2, 3, 5 and 7, Adam at 2e-3, one run each.

Run it as ``python tools/compare_initial_weights.py --data mnist --epochs 3``.
"""

import argparse
from typing import Any
from unittest.mock import patch

from cwrnn.experiments import evaluate

PERIODS = [2, 3, 5, 7]
"""The periods of the network."""


def keep_weights(layer: Any, generator: Any = None) -> Any:
    """Return the layer with the initial weights that it has, in place of `cwrnn.init.orthogonal_`."""
    return layer


def main() -> None:
    """Train both networks and print their errors."""
    parser = argparse.ArgumentParser(description="Compare orthogonal with torch's initial weights on permuted MNIST.")
    parser.add_argument("--data", required=True, help="the folder of the four idx files of MNIST")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--updates", type=int, help="stop after so many updates")
    asked = parser.parse_args()
    # the networks are trained in this process, which has the replacement
    options: dict[str, Any] = {"methods": "cw", "periods": PERIODS, "runs": 1, "workers": 1, **vars(asked)}
    for name in ("orthogonal", "torch's"):
        if name == "orthogonal":
            result = evaluate("permuted-mnist", **options)
        else:
            with patch("cwrnn.init.orthogonal_", keep_weights):
                result = evaluate("permuted-mnist", **options)
        row = result.rows[0]
        error = f"{100 * row.validation:.1f} % validation errors"
        print(f"{name} initial weights: {error}, {row.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
