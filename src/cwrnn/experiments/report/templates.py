"""The templates of pages: Jinja2 files that lie beside the modules that fill them."""

from importlib.resources import files
from typing import Any

from ...extras import require
from ..generation.names import readable_name
from ..networks.methods import ALL_METHODS
from . import drawing
from .privacy import hide_folders


def make_template_environment() -> Any:
    """Returns the Jinja2 environment that finds templates by their path below `cwrnn/experiments`.

    Everything that a template prints is escaped, and a name that a template does not know is an error.
    """
    jinja2 = require("jinja2", extra="experiments", purpose="the report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (files("cwrnn.experiments") / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "method": drawing.NAMES.get,
        "cell": lambda method: ALL_METHODS[method].cell,
        "is_fixed": lambda method: ALL_METHODS[method].is_fixed,
        "has_clocks": lambda method: ALL_METHODS[method].has_clocks,
        "count": "{:,}".format,
        "readable": readable_name,
        "shareable": hide_folders,
        # no line ends between a number and its unit
        "keep_units": lambda text: text.replace(" %", "\u00a0%"),
    }
    environment.globals["methods"] = list(ALL_METHODS)
    return environment
