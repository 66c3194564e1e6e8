"""Texts of a store without the folders of the machine that made it: a page may be shown to anybody."""

import re
import shlex

HIDDEN = "…/"
"""Stands for the folders of an absolute path."""

# components may contain single spaces; a path begins the text or follows a space, a quote, a bracket or one of "=:,"
_COMPONENT = r"[^\s/\\\"'<>|]+(?: [^\s/\\\"'<>|]+)*"
_START = r"(?:(?<=[\s\"'=:,(\[])|^)(?:~|[A-Za-z]:)?[/\\]"
_FOLDERS = re.compile(rf"{_START}(?:{_COMPONENT}[/\\])*(?={_COMPONENT})", re.MULTILINE)


def hide_folders(text: str) -> str:
    """Returns `text` with every absolute path reduced to its last part.

    >>> hide_folders('File "/home/me/my code/cwrnn/layer.py", line 3')
    'File "…/layer.py", line 3'
    >>> hide_folders("song.wav, 1/2 and https://example.org/page")
    'song.wav, 1/2 and https://example.org/page'
    """
    return _FOLDERS.sub(HIDDEN, text)


def hide_command_folders(command: str) -> str:
    """Returns a command line with every absolute path reduced to its last part, quoted where a shell needs it.

    >>> hide_command_folders("cwrnn reproduce words --data timit:/corpora/TIMIT --out '/home/me/my runs'")
    "cwrnn reproduce words --data timit:…/TIMIT --out '…/my runs'"
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return hide_folders(command)
    return " ".join(_quote(hide_folders(word)) for word in words)


def _quote(word: str) -> str:
    # shlex knows only ASCII letters as safe
    return word if re.fullmatch(r"[\w@%+=:,./…-]+", word) else shlex.quote(word)
