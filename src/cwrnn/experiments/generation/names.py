"""Names of the bundled snippets for people; stores keep the names of their files."""

import re


def readable_name(name: str) -> str:
    """Returns the name of a data set as pages show it.

    >>> [readable_name("bundle3_sectoid_chaosland"), readable_name("my song")]
    ['snippet 3', 'my song']
    """
    return re.sub(r"^bundle(\d+)_sectoid_chaosland$", r"snippet \1", name)
