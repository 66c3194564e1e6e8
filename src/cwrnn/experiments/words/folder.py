"""A folder of recordings: anybody's words.

    WORD/SPEAKER.wav        one folder for each word, one file for each speaker (.wav, .flac, .ogg, .oga)
    manifest.csv            or a list, UTF-8: columns word, speaker, file; and if they are there
                            start, end      the word's place in the file, in samples; end is one beyond the last
                            split           train or test
                            cluster         a number from 1 on; words that sound alike have the same

Where there is a manifest, it alone says what belongs to the corpus. Its files are named from the folder that it lies
in, and the names lead nowhere else; only a link in the folder may, which is followed. Other columns are ignored.

Without the column split, each speaker says a word once, and the speakers of each word are divided by `clips.ranked`:
the last two are for testing, the others for training. With it the manifest decides, and a speaker may come twice.
Without the column cluster, the paper's words have the paper's clusters, and if there are others, all are in cluster 1.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from .sound_files import SPLITS, TEST, TRAIN, Clip, Found, clusters_of, printable, ranked

SUFFIXES = (".flac", ".oga", ".ogg", ".wav")
MANIFEST = "manifest.csv"
NEEDED = ("word", "speaker", "file")


def find(folder: Path, *, words: Sequence[str] | None, test: int) -> Found:
    """The clips of a folder, and what is wrong with it."""
    found = Found(printable(folder.resolve().name), printable(f"recordings in {folder}"))
    if not folder.is_dir():
        found.problems.append("there is no such folder")
        return found
    try:
        if (folder / MANIFEST).exists():
            divided = _manifest(folder, words, found)
        else:
            divided = False
            _folders(folder, words, found)
    except OSError as error:
        found.problems.append(f"cannot be read: {error.filename}: {error.strerror}")
        return found
    there = {clip.word: None for clip in found.clips}
    for word in words or ():
        if word not in there:
            found.lacking.append(f"there is no example of the word {word!r}")
    if not divided:
        _divide(found, test)
    # as the caller has them, or as they appear
    order = tuple(words or there)
    if found.clusters:
        found.clusters = {word: found.clusters[word] for word in order if word in found.clusters}
    else:
        found.clusters = clusters_of(order)
    return found


def _folders(folder: Path, words: Sequence[str] | None, found: Found) -> None:
    names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not names:
        found.problems.append(f"no {MANIFEST} and no folders of words in it: expected WORD/SPEAKER.wav")
    for word in names:
        if words is not None and word not in words:
            continue
        files = sorted(
            each
            for each in (folder / word).iterdir()
            if each.suffix.lower() in SUFFIXES and not each.is_dir() and not each.name.startswith(".")
        )
        if not files:
            found.problems.append(f"{word}: no sound in this folder: no file ends in {', '.join(SUFFIXES)}")
        for each in files:
            source = f"{word}/{each.name}"
            if printable(source) != source:
                found.problems.append(f"{source}: word and speaker must be UTF-8")
            else:
                found.clips.append(Clip(word, each.stem, TRAIN, each, source))


def _manifest(folder: Path, words: Sequence[str] | None, found: Found) -> bool:
    """Whether the manifest divides into training and test."""
    try:
        # with or without the mark that some programs put before UTF-8
        text = (folder / MANIFEST).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found.problems.append(f"{MANIFEST}: not UTF-8 ({error.reason} at byte {error.start})")
        return True
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        columns = tuple(name.strip() for name in reader.fieldnames or ())
        reader.fieldnames = columns
        lacking = [name for name in NEEDED if name not in columns]
        if lacking:
            found.problems.append(
                f"{MANIFEST}: no column {', '.join(lacking)}; there are {', '.join(columns) or 'none'}"
            )
            return True
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        found.problems.append(f"{MANIFEST} line {reader.reader.line_num}: {error}")
        return True
    if not rows:
        found.problems.append(f"{MANIFEST}: no rows")
    for line, row in rows:
        where = f"{MANIFEST} line {line}"
        # a row may be too long or too short
        fields = {name: (row.get(name) or "").strip() for name in columns}
        if None in row:
            found.problems.append(f"{where}: more fields than columns")
            continue
        if words is not None and fields["word"] and fields["word"] not in words:
            continue
        wrong = list(_wrong(folder, fields, found.clusters))
        found.problems += [f"{where}: {each}" for each in wrong]
        if wrong:
            continue
        if "cluster" in fields:
            found.clusters[fields["word"]] = int(fields["cluster"])
        found.clips.append(
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
    return "split" in columns


def _wrong(folder: Path, fields: dict[str, str], clusters: dict[str, int]) -> Iterator[str]:
    for name in NEEDED:
        if not fields[name]:
            yield f"the {name} is empty"
    file = PurePath(fields["file"])
    if file.is_absolute() or ".." in file.parts:
        yield f"{file}: the file must lie in the manifest's folder"
    elif fields["file"] and not (folder / file).is_file():
        yield f"{file}: there is no such file"
    if fields.get("split", TRAIN) not in SPLITS:
        yield f"the split must be 'train' or 'test', got {fields['split']!r}"
    places = [fields.get(name) or default for name, default in (("start", "0"), ("end", ""))]
    if not all(_number(each) for each in places if each):
        yield f"start and end must be whole numbers of samples, got {places[0]!r} and {places[1]!r}"
    elif places[1] and int(places[0]) >= int(places[1]):
        yield f"start must be before end, got {places[0]} and {places[1]}"
    if "cluster" in fields:
        cluster, word = fields["cluster"], fields["word"]
        if not _number(cluster) or int(cluster) < 1:
            yield f"the cluster must be a whole number from 1 on, got {cluster!r}"
        elif clusters.get(word, int(cluster)) != int(cluster):
            yield f"the word {word!r} is in cluster {cluster} here, and in {clusters[word]} before"


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _divide(found: Found, test: int) -> None:
    by_word: dict[str, dict[str, Clip]] = {}
    for clip in found.clips:
        other = by_word.setdefault(clip.word, {}).setdefault(clip.speaker, clip)
        if other is not clip:
            found.problems.append(
                f"{clip.source}: the speaker {clip.speaker!r} says {clip.word!r} in {other.source} too; "
                f"without a column split in a {MANIFEST}, each says a word once"
            )
    found.clips = []
    for word, speakers in by_word.items():
        if len(speakers) <= test:
            found.problems.append(
                f"the word {word!r} has {len(speakers)} speakers: {test} for testing leave none to learn"
            )
        order = ranked(word, speakers)
        for i, speaker in enumerate(order):
            split = TRAIN if i < len(order) - test else TEST
            found.clips.append(replace(speakers[speaker], split=split))
