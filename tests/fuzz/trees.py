"""Folders of files, described by JSON: a list of entries [path, kind, content].

["yes/s1.wav", "sound", 7]          a sound that differs for every number
["manifest.csv", "text", "..."]     a text; the characters are bytes
["yes", "folder", null]             an empty folder
["pipe.wav", "fifo", null]          a named pipe that nobody writes to
["loop", "link", "loop"]            a symbolic link
"""

import functools
import io
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import soundfile
from support.sound_files import encode_sphere, make_voice

from .mutation import TEXTS

LINKS = ("loop", ".", "..", "/dev/zero", "/dev/null", "/dev/full", "/nowhere", "/proc/self/mem", "x" * 300)
SUFFIXES = (".wav", ".WAV", ".flac", ".ogg", ".wrd", ".WRD", ".csv", ".mp3", "", ".wav.wav", ".")
FORMATS = {".flac": "FLAC", ".ogg": "OGG"}


@functools.cache
def make_sound(number: int, suffix: str) -> bytes:
    """Return the file of a sound."""
    voice = make_voice(number, 800 + number % 7)
    if suffix == ".WAV":
        return encode_sphere(voice)
    file = io.BytesIO()
    soundfile.write(file, voice, 16000, format=FORMATS.get(suffix, "WAV"))
    return file.getvalue()


def write_tree(folder: Path, entries: Any) -> None:
    """Write the entries into the folder. Entries that cannot be written, or that would leave it, are left out."""
    root = folder.resolve()
    for entry in entries if isinstance(entries, list) else []:
        try:
            name, kind, content = entry
            path = Path(os.path.normpath(root / name))
            # nothing is written through a link or into a pipe that an earlier entry made
            if not path.is_relative_to(root) or os.path.lexists(path):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(root):
                continue
            if kind == "sound":
                path.write_bytes(make_sound(int(content), path.suffix))
            elif kind == "text":
                path.write_bytes(content.encode("latin-1", "replace"))
            elif kind == "folder":
                path.mkdir(exist_ok=True)
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "link":
                path.symlink_to(content)
        except (OSError, TypeError, ValueError):
            continue


def mutate_tree(random: Random, entries: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the entries with one to three changes: renamed, doubled, left out, or of another kind."""
    changed = [list(entry) for entry in entries]
    for _ in range(random.choice((1, 1, 2, 3))):
        i = random.randrange(len(changed))
        name, kind, content = changed[i]
        parent, _, file = name.rpartition("/")
        choice = random.randrange(8)
        if choice == 0:
            del changed[i]
            if not changed:
                return [["a", "folder", None]]
        elif choice == 1:
            new = random.choice([text for text in TEXTS if "/" not in text and len(text) < 200])
            changed[i] = [f"{parent}/{new}{random.choice(SUFFIXES)}", kind, content]
        elif choice == 2:
            changed[i] = [f"{random.choice(TEXTS[:40])}/{file}", kind, content]
        elif choice == 3:
            changed.append([f"{parent}/x{file}", kind, content])
        elif choice == 4:
            changed[i] = [name, "fifo", None]
        elif choice == 5:
            changed[i] = [name, "link", random.choice((*LINKS, random.choice(changed)[0]))]
        elif choice == 6:
            changed[i] = [name, "folder", None]
        else:
            damaged = (
                make_sound(int(content), Path(name).suffix)[: random.choice((0, 1, 20, 44, 500))]
                if kind == "sound"
                else b""
            )
            changed[i] = [name, "text", damaged.decode("latin-1") or random.choice(TEXTS)]
    return changed
