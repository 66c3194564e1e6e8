"""File names as text. Linux allows any bytes in a name, but stores, pages and terminals are UTF-8."""

from pathlib import Path


def replace_undecodable(text: str) -> str:
    """Return `text` with a question mark for each byte of a file name that is not UTF-8.

    >>> replace_undecodable("caf" + chr(0xDCE9) + ".wav")
    'caf?.wav'
    """
    return text.encode("utf-8", "replace").decode()


def format_page_path(page: Path) -> str:
    """Return the sentence that says where a page is."""
    return f"The page is {replace_undecodable(str(page.resolve()))}"
