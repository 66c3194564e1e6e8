"""C from the templates of this folder."""

from importlib.resources import files
from typing import Any

from ...extras import require
from .literals import format_floats, format_integers, format_text


def render(template: str, **values: Any) -> str:
    """The text of a template. In it, the filters floats, integers and text write C literals."""
    jinja2 = require("jinja2", extra="export", purpose="the export to C")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda file: (files("cwrnn.export.c") / file).read_text(encoding="utf-8")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"floats": format_floats, "integers": format_integers, "text": format_text}
    text: str = environment.get_template(template).render(values)
    return text
