"""The templates of the export to WebAssembly: Jinja2 files beside this one, and the style of all pages."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from ...extras import require


def make_template_environment() -> Any:
    """Returns the Jinja2 environment that finds the templates of this folder by their names.

    Pages escape everything that they print. Other files take texts of users through `tojson` alone, which makes them
    harmless in a script, too. A name that a template does not know is an error.
    """
    jinja2 = require("jinja2", extra="export", purpose="the export to WebAssembly")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_file),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["digest"] = digest
    return environment


def read_file(name: str) -> str:
    """Returns the text of a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def read_style() -> str:
    """Returns the style sheet of the page: that of all pages, and what forms and the chart need."""
    return (files("cwrnn.experiments") / "report/style.css").read_text(encoding="utf-8") + read_file("page.css")


def digest(text: str) -> str:
    """Returns the hash that allows a script or a style in a Content-Security-Policy.

    >>> digest("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
