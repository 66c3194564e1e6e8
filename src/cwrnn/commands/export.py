"""The command `cwrnn export` writes a network as a program for another machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ArgumentError
from ..export import check_c, check_onnx, to_c, to_onnx, to_wasm
from ..export.c.check import STEPS
from ..export.c.source import NUMBERS
from ..export.folder import check_folder
from . import options
from .console import Result, guard_output, handle_errors, print_json, print_result, show_progress

EXAMPLES = """examples:

\b
cwrnn export words.safetensors --to c --out firmware/words
cwrnn export words.safetensors --to c --name word_model --out firmware/words --check
cwrnn export words.safetensors --to c --numbers int8 --out firmware/words
cwrnn export net.safetensors --to c --numbers int8 --calibrate inputs.csv --out firmware/net
cwrnn export net.safetensors --to c --out firmware/net --json
cwrnn export words.safetensors --to wasm --name words --out site/words    for browsers, with a page to try it
cwrnn export words.safetensors --to onnx --name words --out exported/words --check

exit codes: 0 the program is written, 1 an error, 2 wrong usage, 130 interrupted
"""


@dataclass(frozen=True)
class Format:
    """A kind of program that networks are exported to."""

    export: Callable[..., Result]
    """Writes the program: takes the model, the path `out` and the options."""
    options: frozenset[str]
    """The options of the command that it takes, by the names of their arguments."""
    check: Callable[..., Result] | None = None
    """Checks the program before it is written: takes the model, the same options and `progress`."""


FORMATS = {
    "c": Format(to_c, frozenset({"name", "numbers", "calibration"}), check_c),
    "wasm": Format(to_wasm, frozenset({"name", "numbers", "calibration"})),
    "onnx": Format(to_onnx, frozenset({"name"}), check_onnx),
}
"""The formats by their names."""


def export(
    model: Annotated[
        Path,
        typer.Argument(
            parser=options.parse_path,
            metavar="MODEL",
            help="The file that `cwrnn words train` wrote, or another saved network (cwrnn.saved).",
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="|".join(FORMATS), help="The form of the program.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=options.parse_path, metavar="DIR", help="The folder to write, which must be new or empty."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="An identifier, with which the names of files and functions begin.",
            show_default="network",
        ),
    ] = None,
    numbers: Annotated[
        str | None,
        typer.Option(
            "--numbers",
            metavar="|".join(NUMBERS),
            help="With --to c or wasm: the numbers to compute with.",
            show_default="float32",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="FILE",
            help="With --numbers int8: inputs as the network will meet them, a .npy, .npz or CSV file with rows of "
            "inputs. For a recogniser also words, as `cwrnn words train --data` takes them.",
            show_default="for a recogniser, the words of the package",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare the program with Python before anything is written. C: it is compiled and runs "
            f"{STEPS:,} steps, and its cost is printed beside that of networks without clocks. ONNX: onnxruntime runs "
            "the models over whole sequences and step by step. Not for wasm.",
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a trained network as a program that runs without Python, on a microcontroller for example.

    For C these are a header and a source in C99, which need no library, allocate nothing and compute the same bits on
    every machine. For WebAssembly these are the same program as a module, a wrapper in JavaScript, and a page that runs
    it in a browser, without a server. For ONNX these are models for whole sequences and for single steps.

    In Python: cwrnn.export.to_c, check_c, to_wasm, to_onnx and check_onnx.
    """
    with handle_errors(option_names={"model": "MODEL", "calibration": "--calibrate"}):
        chosen = _find_format(to)
        # before the check, which takes some time
        check_folder(out)
        given = {"name": name, "numbers": numbers, "calibration": calibrate}
        arguments = {option: value for option, value in given.items() if value is not None}
        for option in arguments:
            if option not in chosen.options:
                raise _refuse_option(option, to, [key for key, form in FORMATS.items() if option in form.options])
        checked = None
        if check:
            if chosen.check is None:
                raise _refuse_option("check", to, [key for key, form in FORMATS.items() if form.check is not None])
            with show_progress(quiet=quiet, lines=False) as progress:
                checked = chosen.check(model, **arguments, progress=progress)
        result = chosen.export(model, out, **arguments)
        _print_export(result, checked, as_json=as_json)


def _find_format(to: str) -> Format:
    if to not in FORMATS:
        raise ArgumentError("to", f"expected one of {', '.join(FORMATS)}, got {to!r}")
    return FORMATS[to]


def _refuse_option(option: str, to: str, formats: Sequence[str]) -> ArgumentError:
    """The error about an option that only these formats take."""
    names = " and ".join(f"--to {name}" for name in formats)
    return ArgumentError(option, f"works with {names}, got --to {to}")


def _print_export(result: Result, checked: Result | None, *, as_json: bool) -> None:
    if checked is not None and as_json:
        print_json({**result.to_dict(), "check": checked.to_dict()})
        return
    print_result(result, as_json=as_json)
    if checked is not None:
        with guard_output():
            print(f"\n{checked}")
