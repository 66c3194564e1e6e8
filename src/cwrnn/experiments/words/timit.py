"""TIMIT: the paper's corpus, as the Linguistic Data Consortium distributes it, and the free sample in NLTK.

    TIMIT/TRAIN/DR1/FCJF0/SA1.WAV, SA1.WRD      names in upper or lower case, below any folders
    timit/dr1-fvmh0/sa1.wav, sa1.wrd            NLTK's

A .WRD file has a line "first last word" for each word, in samples; the .WAV beside it is NIST SPHERE or RIFF. Their
folder has the name of the speaker.

The paper names 25 words, but not which examples it used. Here a rule chooses seven examples of each word: from every
speaker the first example, by the name of the sentence and the place in it, that is at least one window long; then the
first seven speakers of `clips.order_speakers`, five for training and two for testing. TIMIT's own division into
training and test is not used.

NLTK's sample has too few speakers for these words. Its default words are those of the two sentences that every speaker
reads.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from ...untrusted import read_regular_file, shorten
from .. import paper
from ..file_names import replace_undecodable
from .clips import TEST, TRAIN, Clip, SourceContents, assign_clusters, order_speakers
from .features import FeatureSettings

SAMPLE_RATE = 16000
SENTENCES = ("sa1", "sa2")
"""The two sentences that every speaker reads."""

LARGEST_TRANSCRIPT = 2**16
"""The most bytes of a .WRD file. A sentence of TIMIT has some hundred."""

DEFAULT_WORDS, CHOSEN_WORDS = "the paper's 25 words", "words of one's choice"


@dataclass
class _Transcripts:
    """The examples in all transcripts below a folder."""

    examples: dict[str, dict[str, Clip]] = field(default_factory=dict)
    """The first example of each word by each speaker."""
    common_words: set[str] = field(default_factory=set)
    """The words of the sentences that every speaker reads."""
    bad_lines: list[tuple[set[str], str]] = field(default_factory=list)
    """The lines that cannot be understood: the texts in the line, one of which may be its word, and the problem."""


def read_timit(
    folder: Path,
    *,
    sample: bool,
    words: Sequence[str] | None,
    speakers: int,
    test: int,
    settings: FeatureSettings,
    all_speakers: bool = False,
) -> SourceContents:
    """Return the clips of TIMIT, and everything that is wrong with it.

    Args:
        folder: the folder that has the transcripts below it
        sample: True for the sample that comes with NLTK
        words: the words, in lower case; None for the paper's, or those of the sample
        speakers: examples of each word, each by another speaker
        test: how many of them are for testing
        settings: the settings of the features: an example must be at least one window long
        all_speakers: True for an example of every speaker; `speakers` is then the least number for each word
    """
    if sample:
        source = "the sample of TIMIT that comes with NLTK, too small for the paper's 25 words: "
        source += "the words of its sentences sa1 and sa2" if words is None else CHOSEN_WORDS
    else:
        source = f"TIMIT: {DEFAULT_WORDS if words is None else CHOSEN_WORDS}"
    contents = SourceContents("nltk-timit" if sample else "timit", source)
    if not os.path.isdir(folder):
        contents.problems.append("there is no such folder")
        return contents
    transcripts = _read_transcripts(folder, settings, contents)
    examples = transcripts.examples
    if not examples:
        contents.problems += [problem for _, problem in transcripts.bad_lines]
        contents.problems.append("has no words: expected files such as DR1/FCJF0/SA1.WRD below it")
        return contents
    enough = {word for word, by_speaker in examples.items() if len(by_speaker) >= speakers}
    if words is not None:
        chosen = tuple(words)
    elif sample:
        chosen = tuple(sorted(transcripts.common_words & enough))
    else:
        chosen = tuple(chain.from_iterable(paper.WORDS_VOCABULARY))
    if not chosen:
        contents.problems.append(f"no word of the sentences {' and '.join(SENTENCES)} is spoken by {speakers} speakers")
    missing = [word for word in chosen if word not in enough]
    # a bad line may be the reason why a word has too few speakers, or why the sample's own words lack one
    wanted = transcripts.common_words if sample and words is None else set(chosen)
    contents.problems += [
        problem for texts, problem in transcripts.bad_lines if missing or not chosen or texts & wanted
    ]
    # words that the caller chose are the caller's to change
    report = contents.problems if words is None else contents.missing_words
    for word in missing:
        report.append(f"{word}: {speakers} speakers are needed, {len(examples.get(word, ()))} say it")
    if missing:
        rest = [word for word in chosen if word in enough]
        some = ",".join(rest) if len(rest) > 1 else "WORD,WORD,..."
        report.append(f"choose words with enough speakers: --words {some}")
    for word in chosen:
        order = order_speakers(word, examples.get(word, ()))
        for i, speaker in enumerate(order if all_speakers else order[:speakers]):
            split = TRAIN if i < speakers - test else TEST
            contents.clips.append(replace(examples[word][speaker], split=split))
    contents.clusters = assign_clusters(chosen)
    return contents


def _read_transcripts(folder: Path, settings: FeatureSettings, contents: SourceContents) -> _Transcripts:
    transcripts = _Transcripts()
    for path in _find_transcripts(folder, contents):
        for clip in _read_transcript(folder, path, settings, contents, transcripts):
            transcripts.examples.setdefault(clip.word, {}).setdefault(clip.speaker, clip)
            if path.stem.lower() in SENTENCES:
                transcripts.common_words.add(clip.word)
    return transcripts


def _find_transcripts(folder: Path, contents: SourceContents) -> list[Path]:
    """Return all .WRD files below `folder`, by speaker and sentence; links are followed, every folder is read once."""

    def report(error: OSError) -> None:
        contents.problems.append(f"{error.filename}: cannot be read: {error.strerror}")

    paths: list[Path] = []
    seen = set()
    for parent, folders, names in os.walk(folder, onerror=report, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        # sorted, so that a folder with two names gets the same one on every machine
        folders.sort()
        paths += [Path(parent) / name for name in names if name.lower().endswith(".wrd") and not name.startswith(".")]
    return sorted(paths, key=lambda path: (_name_speaker(path), path.stem.lower(), str(path)))


def _name_speaker(path: Path) -> str:
    """Return the speaker of a file: "fcjf0" for FCJF0/SA1.WRD, "fvmh0" for dr1-fvmh0/sa1.wrd."""
    return replace_undecodable(path.parent.name.lower().rpartition("-")[2])


def _read_transcript(
    folder: Path, path: Path, settings: FeatureSettings, contents: SourceContents, transcripts: _Transcripts
) -> Iterator[Clip]:
    """Yield the examples in one transcript; note the lines that cannot be understood."""
    where = replace_undecodable(path.relative_to(folder).as_posix())
    try:
        lines = read_regular_file(path, LARGEST_TRANSCRIPT).decode("latin-1").splitlines()
    except OSError as error:
        contents.problems.append(f"{where}: cannot be read: {error.strerror}")
        return
    sound = _find_sound(path)
    for number, line in enumerate(lines, start=1):
        fields = re.fullmatch(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\S+)\s*", line)
        if not fields or int(fields[1]) >= int(fields[2]):
            if line.strip():
                problem = f"{where} line {number}: expected 'first last word', got {shorten(line.strip())!r}"
                transcripts.bad_lines.append((set(line.lower().split()), problem))
            continue
        start, end = int(fields[1]), int(fields[2])
        if (end - start) * 1000 >= settings.window * SAMPLE_RATE:
            source = f"{where} line {number}, {sound.name}"
            yield Clip(fields[3].lower(), _name_speaker(path), TRAIN, sound, source, start, end, SAMPLE_RATE)


def _find_sound(path: Path) -> Path:
    """Return the sound beside a transcript: SA1.WAV, sa1.wav or, in some copies, the RIFF file SA1.WAV.wav."""
    stem = path.name[:-4]
    sounds = [path.with_name(stem + suffix) for suffix in (".WAV", ".wav", ".WAV.wav")]
    # a missing file is reported when it is read
    return next((sound for sound in sounds if os.path.exists(sound)), sounds[path.suffix.islower()])
