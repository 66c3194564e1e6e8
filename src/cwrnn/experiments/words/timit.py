"""TIMIT: the paper's corpus, as its owners have it, and the free sample of it that comes with NLTK.

    TIMIT/TRAIN/DR1/FCJF0/SA1.WAV, SA1.WRD      names in upper or lower case, below any folders
    timit/dr1-fvmh0/sa1.wav, sa1.wrd            NLTK's

A .WRD file has a line "first last word" for each word, in samples; the .WAV beside it is NIST SPHERE or RIFF. The
folder that they lie in is named for the speaker.

The paper names 25 words, and not which examples it took. Here each word's seven are chosen by rule: of every speaker
the first example, by the sentence's name and the place in it, that is at least one window long; then the first seven
speakers of `clips.ranked`, five for training and two for testing. TIMIT's own division into training and test is not
used.

NLTK's sample has too few speakers for these words. Its own are those of the two sentences that every speaker reads.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from .features import FeatureSettings
from .sound_files import PAPER_WORDS, TEST, TRAIN, Clip, Found, clusters_of, printable, ranked

RATE = 16000
SENTENCES = ("sa1", "sa2")
"""Those that every speaker reads."""

PAPERS, CHOSEN = "the paper's 25 words", "words of one's choice"


def find(
    folder: Path, *, sample: bool, words: Sequence[str] | None, speakers: int, test: int, settings: FeatureSettings
) -> Found:
    """The clips of `words`, in lower case, or of the paper's, and what is wrong with the corpus.

    `sample` says that it is NLTK's.
    """
    if sample:
        source = "the sample of TIMIT that comes with NLTK, too small for the paper's 25 words: "
        source += "the words of its sentences sa1 and sa2" if words is None else CHOSEN
    else:
        source = f"TIMIT: {PAPERS if words is None else CHOSEN}"
    found = Found("nltk-timit" if sample else "timit", source)
    if not folder.is_dir():
        found.problems.append("there is no such folder")
        return found
    examples: dict[str, dict[str, Clip]] = {}
    everybodys = set()
    odd: list[tuple[set[str], str]] = []
    for path in _transcripts(folder, found):
        for clip in _examples(folder, path, settings, found, odd):
            examples.setdefault(clip.word, {}).setdefault(clip.speaker, clip)
            if path.stem.lower() in SENTENCES:
                everybodys.add(clip.word)
    if not examples:
        found.problems += [problem for _, problem in odd]
        found.problems.append("no words in it: expected files such as DR1/FCJF0/SA1.WRD below it")
        return found
    enough = {word for word, by_speaker in examples.items() if len(by_speaker) >= speakers}
    if words is not None:
        chosen = tuple(words)
    elif sample:
        chosen = tuple(sorted(everybodys & enough))
    else:
        chosen = tuple(chain.from_iterable(PAPER_WORDS))
    if not chosen:
        found.problems.append(f"no word of the sentences {' and '.join(SENTENCES)} is said by {speakers} speakers")
    lacking = [word for word in chosen if word not in enough]
    # of the sample, such a line may be why one of its words is not chosen
    wanted = everybodys if sample and words is None else set(chosen)
    found.problems += [problem for said, problem in odd if lacking or not chosen or said & wanted]
    # who chose them can choose others
    report = found.problems if words is None else found.lacking
    for word in lacking:
        report.append(f"{word}: {speakers} speakers are needed, {len(examples.get(word, ()))} say it")
    if lacking:
        rest = [word for word in chosen if word in enough]
        some = ",".join(rest) if len(rest) > 1 else "WORD,WORD,..."
        report.append(f"name words with enough speakers: --words {some}")
    for word in chosen:
        for i, speaker in enumerate(ranked(word, examples.get(word, ()))[:speakers]):
            split = TRAIN if i < speakers - test else TEST
            found.clips.append(replace(examples[word][speaker], split=split))
    found.clusters = clusters_of(chosen)
    return found


def _transcripts(folder: Path, found: Found) -> list[Path]:
    """All .WRD files below `folder`, by speaker and sentence; links are followed, and every folder is read once."""

    def unreadable(error: OSError) -> None:
        found.problems.append(f"{error.filename}: cannot be read: {error.strerror}")

    paths: list[Path] = []
    seen = set()
    for parent, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        # the same name for a folder that has two, wherever this runs
        folders.sort()
        paths += [Path(parent) / name for name in names if name.lower().endswith(".wrd") and not name.startswith(".")]
    return sorted(paths, key=lambda path: (_speaker(path), path.stem.lower(), str(path)))


def _speaker(path: Path) -> str:
    """The speaker of a file: "fcjf0" of FCJF0/SA1.WRD, "fvmh0" of dr1-fvmh0/sa1.wrd."""
    return printable(path.parent.name.lower().rpartition("-")[2])


def _examples(
    folder: Path, path: Path, settings: FeatureSettings, found: Found, odd: list[tuple[set[str], str]]
) -> Iterator[Clip]:
    """The examples in one transcript; `odd` gets the lines that make no sense, each with what may be its word."""
    where = printable(path.relative_to(folder).as_posix())
    try:
        lines = path.read_text("latin-1").splitlines()
    except OSError as error:
        found.problems.append(f"{where}: cannot be read: {error.strerror}")
        return
    sound = _sound(path)
    for number, line in enumerate(lines, start=1):
        fields = re.fullmatch(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\S+)\s*", line)
        if not fields or int(fields[1]) >= int(fields[2]):
            if line.strip():
                problem = f"{where} line {number}: expected 'first last word', got {line.strip()!r}"
                odd.append((set(line.lower().split()), problem))
            continue
        start, end = int(fields[1]), int(fields[2])
        if (end - start) * 1000 >= settings.window * RATE:
            source = f"{where} line {number}, {sound.name}"
            yield Clip(fields[3].lower(), _speaker(path), TRAIN, sound, source, start, end, RATE)


def _sound(path: Path) -> Path:
    """The sound beside a transcript, whichever case its name has; some copies have RIFF files SA1.WAV.wav instead."""
    stem = path.name[:-4]
    sounds = [path.with_name(stem + suffix) for suffix in (".WAV", ".wav", ".WAV.wav")]
    # one that is not there is told when it is read
    return next((each for each in sounds if each.exists()), sounds[path.suffix.islower()])
