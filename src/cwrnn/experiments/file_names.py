"""File names that are not UTF-8: Linux allows any bytes in a name, but stores, pages and terminals are UTF-8."""


def replace_undecodable(text: str) -> str:
    """Return `text` with a question mark for each byte of a file name that is not UTF-8.

    >>> replace_undecodable("caf" + chr(0xDCE9) + ".wav")
    'caf?.wav'
    """
    return text.encode("utf-8", "replace").decode()
