"""Prepares docstrings for the documentation site: doctests become code blocks, and roles plain code.

mkdocstrings loads this file (see mkdocs.yml). Without it, Markdown reads `>>>` as a quotation.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod):`~?([^`]+)`")
DIRECTIVE = re.compile(r"^\.\. code-block:: \w+\n\n?", re.MULTILINE)
DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
TITLED = re.compile(r"^(Inputs|Outputs): ", re.MULTILINE)


def fence_doctests(text: str) -> str:
    """`text` with a fence around every doctest that begins a line; mkdocstrings knows those in a section of examples.

    >>> fence_doctests("One plus one.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['One plus one.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return DOCTEST.sub(r"```pycon\n\g<0>\n```", text)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites the docstring of every object."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Rewrite the docstring of `obj`."""
        if obj.docstring:
            text = DIRECTIVE.sub("", ROLE.sub(r"`\1`", obj.docstring.value))
            text = TITLED.sub(r"\1: \1: ", text.replace("``", "`").replace("Examples::\n\n", "Examples:\n"))
            obj.docstring.value = fence_doctests(text)
