"""A folder of the user's own recordings.

    WORD/SPEAKER.wav        one folder for each word, one file for each speaker (.wav, .flac, .ogg, .oga)
    manifest.csv            or a list in UTF-8 with the columns word, speaker, file, and optionally
                            start, end      the word's place in the file, in samples; end is one beyond the last
                            split           train or test
                            cluster         a number from 1 on, the same for words that sound alike

A manifest alone decides what belongs to the corpus. It names files relative to its own folder, and the names may not
leave that folder; links in the folder are followed. Other columns are ignored.

Without the column split, each speaker may say a word only once, and `clips.order_speakers` divides the speakers of each
word: the last two are for testing, the others for training. With the column, a speaker may appear several times.
Without the column cluster, the paper's words have the paper's clusters; if there are other words, all are in cluster 1.
"""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from ...untrusted import read_regular_file, shorten
from ..file_names import replace_undecodable
from .clips import SPLITS, TEST, TRAIN, Clip, SourceContents, assign_clusters, order_speakers

SUFFIXES = (".flac", ".oga", ".ogg", ".wav")
MANIFEST = "manifest.csv"
LARGEST_MANIFEST = 2**26
"""The most bytes of a manifest: 64 MiB, about a million rows."""
REQUIRED_COLUMNS = ("word", "speaker", "file")
OPTIONAL_COLUMNS = ("start", "end", "split", "cluster")
MOST_PROBLEMS = 1000
"""After so many problems, the rest of a manifest is not read."""


def read_folder(folder: Path, *, words: Sequence[str] | None, test: int) -> SourceContents:
    """Return the clips of a folder, and everything that is wrong with it.

    Args:
        folder: the folder
        words: only these words, in this order; None for all
        test: how many speakers of each word are for testing, unless a manifest has the column split
    """
    is_folder = os.path.isdir(folder)
    # the name of a folder such as "." or a link
    name = os.path.basename(os.path.realpath(folder)) if is_folder else folder.name
    contents = SourceContents(replace_undecodable(name), replace_undecodable(f"recordings in {folder}"))
    if not is_folder:
        contents.problems.append("there is no such folder")
        return contents
    try:
        if os.path.lexists(folder / MANIFEST):
            contents.has_split = _read_manifest(folder, words, contents)
        else:
            _read_word_folders(folder, words, contents)
    except OSError as error:
        contents.problems.append(f"cannot be read: {error.filename}: {error.strerror}")
        return contents
    words_present = {clip.word: None for clip in contents.clips}
    for word in words or ():
        if word not in words_present:
            contents.missing_words.append(f"there is no example of the word {word!r}")
    if not contents.has_split:
        _divide_speakers(contents, test)
    order = tuple(words or words_present)
    if contents.clusters:
        contents.clusters = {word: contents.clusters[word] for word in order if word in contents.clusters}
    else:
        contents.clusters = assign_clusters(order)
    return contents


def _read_word_folders(folder: Path, words: Sequence[str] | None, contents: SourceContents) -> None:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        contents.problems.append(f"has no {MANIFEST} and no folders of words: expected WORD/SPEAKER.wav")
    for word in names:
        if words is not None and word not in words:
            continue
        files = sorted(
            file
            for file in (folder / word).iterdir()
            if file.suffix.lower() in SUFFIXES and not file.is_dir() and not file.name.startswith(".")
        )
        if not files:
            contents.problems.append(f"{word}: no sound in this folder: no file ends in {', '.join(SUFFIXES)}")
        for file in files:
            source = f"{word}/{file.name}"
            if replace_undecodable(source) != source:
                contents.problems.append(f"{source}: the names of word and speaker must be UTF-8")
            else:
                contents.clips.append(Clip(word, file.stem, TRAIN, file, source))


def _read_manifest(folder: Path, words: Sequence[str] | None, contents: SourceContents) -> bool:
    """Add the clips of the manifest to `contents`; return whether it divides them into training and test.

    A manifest that cannot be read counts as divided: there are no clips to divide.
    """
    try:
        # with or without a byte order mark
        text = read_regular_file(folder / MANIFEST, LARGEST_MANIFEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        contents.problems.append(f"{MANIFEST}: not UTF-8 ({error.reason} at byte {error.start})")
        return True
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        return _read_rows(reader, folder, words, contents)
    except csv.Error as error:
        contents.clips.clear()
        contents.clusters.clear()
        contents.problems[:] = [f"{MANIFEST} line {reader.line_num}: {error}"]
        return True


def _read_rows(reader: Any, folder: Path, words: Sequence[str] | None, contents: SourceContents) -> bool:
    """Add the clips of the rows to `contents`; return whether there is a column split. Raises csv.Error."""
    columns = [name.strip() for name in next(reader, [])]
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        present = shorten(", ".join(columns), 200) or "none"
        contents.problems.append(f"{MANIFEST}: no column {', '.join(missing)}; the columns are {present}")
        return True
    places = {name: place for place, name in enumerate(columns) if name in REQUIRED_COLUMNS + OPTIONAL_COLUMNS}
    is_empty = True
    for row in reader:
        if not row:
            continue
        is_empty, where = False, f"{MANIFEST} line {reader.line_num}"
        if len(contents.problems) >= MOST_PROBLEMS:
            contents.problems.append(f"{where}: too many problems, the rest is not read")
            break
        if len(row) > len(columns):
            contents.problems.append(f"{where}: more fields than columns")
            continue
        # a row may have too few fields
        fields = {name: row[place].strip() if place < len(row) else "" for name, place in places.items()}
        if words is not None and fields["word"] and fields["word"] not in words:
            continue
        problems = list(_check_row(folder, fields, contents.clusters))
        contents.problems += [f"{where}: {problem}" for problem in problems]
        if problems:
            continue
        if "cluster" in fields:
            contents.clusters[fields["word"]] = int(fields["cluster"])
        contents.clips.append(
            Clip(
                word=fields["word"],
                speaker=fields["speaker"],
                split=fields.get("split", TRAIN),
                path=folder / fields["file"],
                source=f"{where}, {fields['file']}",
                start=int(fields.get("start") or 0),
                end=int(fields["end"]) if fields.get("end") else None,
            )
        )
    if is_empty:
        contents.problems.append(f"{MANIFEST}: no rows")
    return "split" in columns


def _check_row(folder: Path, fields: dict[str, str], clusters: dict[str, int]) -> Iterator[str]:
    """Yield every problem of a row."""
    for name in REQUIRED_COLUMNS:
        if not fields[name]:
            yield f"the {name} is empty"
    file = PurePath(fields["file"])
    if file.is_absolute() or ".." in file.parts:
        yield f"{shorten(str(file))}: the file must lie in the manifest's folder"
    elif fields["file"] and not os.path.isfile(folder / file):
        yield f"{shorten(str(file))}: there is no such file"
    if fields.get("split", TRAIN) not in SPLITS:
        yield f"the split must be 'train' or 'test', got {shorten(fields['split'])!r}"
    places = [fields.get(name) or default for name, default in (("start", "0"), ("end", ""))]
    if not all(_is_number(place) for place in places if place):
        yield f"start and end must be whole numbers of samples, got {shorten(places[0])!r} and {shorten(places[1])!r}"
    elif places[1] and int(places[0]) >= int(places[1]):
        yield f"start must be before end, got {places[0]} and {places[1]}"
    if "cluster" in fields:
        cluster, word = fields["cluster"], fields["word"]
        if not _is_number(cluster) or int(cluster) < 1:
            yield f"the cluster must be a whole number from 1 on, got {shorten(cluster)!r}"
        elif clusters.get(word, int(cluster)) != int(cluster):
            yield f"the word {shorten(word)!r} is in cluster {cluster} here, but in {clusters[word]} before"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _divide_speakers(contents: SourceContents, test: int) -> None:
    """Divide the speakers of each word: the last `test` are for testing, the others for training."""
    by_word: dict[str, dict[str, Clip]] = {}
    for clip in contents.clips:
        other = by_word.setdefault(clip.word, {}).setdefault(clip.speaker, clip)
        if other is not clip:
            contents.problems.append(
                f"{clip.source}: the speaker {clip.speaker!r} says {clip.word!r} in {other.source} too; "
                f"without a column split in a {MANIFEST}, a speaker may say a word only once"
            )
    contents.clips = []
    for word, speakers in by_word.items():
        if len(speakers) <= test:
            contents.problems.append(
                f"the word {word!r} has {len(speakers)} speakers: with {test} for testing, none are left for training"
            )
        order = order_speakers(word, speakers)
        for i, speaker in enumerate(order):
            split = TRAIN if i < len(order) - test else TEST
            contents.clips.append(replace(speakers[speaker], split=split))
