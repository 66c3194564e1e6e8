"""Recognising words: `recognise` takes sound files, `recognise_stream` takes a sound that is still arriving."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....untrusted import escape_controls
from ...errors import ArgumentError
from ...file_names import replace_undecodable
from ...networks.descent import use_one_thread
from ...progress import Progress, ProgressCallback
from ..features import SAMPLE_RATES
from ..sound_files import SoundError, decode_sound, describe_too_short, read_sound_file
from .model import Candidates, Decision, Recogniser, trim_silence

CHUNK = 2048
"""Bytes to read at once from a stream, at most: 64 ms at 16 kHz."""
SOUND_FILES = (b"RIFF", b"fLaC", b"OggS", b"NIST", b"FORM", b"ID3")
"""The first bytes of sound files, which raw samples hardly ever have."""
DEFAULT_TOP = 3

Samples = NDArray[np.floating[Any]]


class BinaryFile(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


@dataclass(frozen=True)
class FileRecognition:
    """The words that a sound file may be, or the reason why it cannot be used."""

    file: str
    """The path, as the caller wrote it."""
    candidates: Candidates
    """The most probable words with their probabilities; empty if the file cannot be used."""
    error: str | None = None
    """What is wrong with the file."""

    def to_dict(self) -> dict[str, Any]:
        """Return the words or the error for JSON."""
        if self.error is not None:
            return {"file": self.file, "error": self.error}
        return {"file": self.file, "words": list_candidates(self.candidates)}

    def __str__(self) -> str:
        text = format_candidates(self.candidates) if self.error is None else escape_controls(self.error)
        return f"{escape_controls(self.file)}: {text}"


@dataclass(frozen=True)
class Recognition:
    """The result of `recognise`: one entry for each file."""

    files: Sequence[FileRecognition]

    @property
    def failed(self) -> list[FileRecognition]:
        """The files that cannot be used."""
        return [file for file in self.files if file.error is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return all files for JSON."""
        return {"files": [file.to_dict() for file in self.files]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.files))


@dataclass(frozen=True)
class StreamRecognition:
    """The result of `recognise_stream`: the decision after the last frame."""

    decision: Decision
    top: int
    """How many words to print."""
    seconds: float
    """The duration of the sound."""
    busy_seconds: float
    """The processor time that recognising took."""
    is_cut: bool
    """True if the stream ended within a sample. The odd byte was left out."""

    def to_dict(self) -> dict[str, Any]:
        """Return the last decision for JSON."""
        words = list_candidates(self.decision.candidates[: self.top])
        return {"time": self.decision.time, "words": words, "final": True}

    def __str__(self) -> str:
        return f"{format_decision(self.decision, self.top)}  in the end"


def recognise(
    model: str | Path | Recogniser,
    files: str | Path | Sequence[str | Path],
    *,
    top: int = DEFAULT_TOP,
    trim: bool = False,
    on_file: Callable[[FileRecognition], None] | None = None,
    progress: ProgressCallback | None = None,
) -> Recognition:
    """Recognise the word in each sound file, and return the most probable words with their probabilities.

    The network takes every sound for one of its words. It was trained on words that were cut tightly: silence before or
    after the word, or a second word, make it less sure or wrong. A file that cannot be used does not stop the others;
    its entry in the result says what is wrong.

    Args:
        model: a file that `train_recogniser` wrote, or a Recogniser
        files: one or more recordings of one word each: WAV, FLAC, OGG or NIST SPHERE
        top: how many words to return for each file, the most probable first
        trim: leave out the silence before and after the word
        on_file: called with the result of each file as soon as it is known
        progress: called after each file

    Raises:
        ModelError: the file `model` is not a recogniser

    >>> from cwrnn.experiments import train_recogniser
    >>> trained = train_recogniser(words=["making", "subway"], schedule="1:4,2:4", learning_rate=0.003, epochs=1)
    >>> print(recognise(trained.recogniser, "nowhere.wav"))
    nowhere.wav: cannot be read: No such file or directory
    """
    _check_top(top)
    paths = [files] if isinstance(files, (str, Path)) else list(files)
    recogniser = _load_recogniser(model)
    results: list[FileRecognition] = []
    with use_one_thread():
        for path in paths:
            results.append(_recognise_file(recogniser, path, top, trim))
            if on_file is not None:
                on_file(results[-1])
            if progress is not None:
                progress(Progress("recognising", len(results), len(paths), len(results) / len(paths)))
    return Recognition(results)


def recognise_stream(
    model: str | Path | Recogniser,
    stream: BinaryFile | Iterable[bytes | Samples],
    *,
    sample_rate: int | None = None,
    top: int = DEFAULT_TOP,
    on_decisions: Callable[[list[Decision]], None] | None = None,
) -> StreamRecognition:
    """Recognise the word in a sound while it arrives, and return the decision after the last frame.

    The decision is that of `recognise` for the whole sound, however the sound is cut into chunks.

    Args:
        model: a file that `train_recogniser` wrote, or a Recogniser
        stream: an open binary file of raw samples, such as `sys.stdin.buffer`: 16 bits, little-endian, one channel; or
            an iterable of chunks, each such bytes or floating-point samples (n,) in [-1, 1]
        sample_rate: samples per second; None for 16000
        top: how many words the result prints, the most probable first
        on_decisions: called after each chunk with the decisions for its frames, one every 10 ms

    Raises:
        ModelError: the file `model` is not a recogniser
        SoundError: the stream is a sound file rather than raw samples, is shorter than one window, or has samples that
            cannot be used; or a probability is not finite

    >>> from cwrnn.experiments import train_recogniser
    >>> trained = train_recogniser(words=["making", "subway"], schedule="1:4,2:4", learning_rate=0.003, epochs=1)
    >>> chunks = np.split(np.sin(np.arange(4000) / 5), 10)
    >>> recognise_stream(trained.recogniser, chunks).seconds
    0.25
    """
    _check_top(top)
    recogniser = _load_recogniser(model)
    rate = recogniser.settings.rate if sample_rate is None else sample_rate
    low, high = SAMPLE_RATES
    if not low <= rate <= high:
        raise ArgumentError("sample_rate", f"expected {low} to {high} Hz, got {sample_rate}")
    chunks = _Chunks(stream)
    listener = recogniser.listen(rate)
    samples, busy = 0, 0.0
    with use_one_thread():
        for chunk in chunks:
            started = time.thread_time()
            decisions = listener.accept(chunk)
            busy += time.thread_time() - started
            samples += len(chunk)
            if on_decisions is not None:
                on_decisions(decisions)
        started = time.thread_time()
        decisions = listener.finish()
        busy += time.thread_time() - started
        if on_decisions is not None:
            on_decisions(decisions)
    if listener.decision is None:
        raise SoundError(describe_too_short(samples, rate, recogniser.settings))
    return StreamRecognition(listener.decision, top, samples / rate, busy, chunks.is_cut)


class _Chunks:
    """The samples of a stream, as they arrive."""

    def __init__(self, stream: BinaryFile | Iterable[bytes | Samples]) -> None:
        self._stream = stream
        self.is_cut = False
        """True if the stream ended within a sample."""

    def __iter__(self) -> Iterator[Samples]:
        rest, first = b"", True
        for chunk in self._read():
            if not isinstance(chunk, (bytes, bytearray, memoryview)):
                yield chunk
                continue
            rest += bytes(chunk)
            if first and rest.startswith(SOUND_FILES):
                raise SoundError("this is a sound file, but a stream must be raw samples: recognise it as a file")
            first = False
            whole = len(rest) // 2 * 2
            yield np.frombuffer(rest[:whole], "<i2") / 32768
            rest = rest[whole:]
        self.is_cut = bool(rest)

    def _read(self) -> Iterator[bytes | Samples]:
        # unlike `read`, `read1` does not wait until all bytes are there
        read = getattr(self._stream, "read1", None) or getattr(self._stream, "read", None)
        if read is None:
            assert isinstance(self._stream, Iterable)
            yield from self._stream
            return
        while data := read(CHUNK):
            yield data


def format_candidates(candidates: Candidates) -> str:
    """Return words with their probabilities as text.

    >>> format_candidates([("making", 0.912), ("walking", 0.05)])
    'making 91.2 %, walking 5.0 %'
    """
    return ", ".join(f"{escape_controls(word)} {100 * probability:.1f} %" for word, probability in candidates)


def format_decision(decision: Decision, top: int) -> str:
    """Return the time of a decision and its most probable words as text."""
    return f"{decision.time:7.3f} s  {format_candidates(decision.candidates[:top])}"


def list_candidates(candidates: Candidates) -> list[dict[str, Any]]:
    """Return words with their probabilities for JSON."""
    return [{"word": word, "probability": probability} for word, probability in candidates]


def _check_top(top: int) -> None:
    if top < 1:
        raise ArgumentError("top", f"expected at least 1, got {top}")


def _load_recogniser(model: str | Path | Recogniser) -> Recogniser:
    return model if isinstance(model, Recogniser) else Recogniser.load(model)


def _recognise_file(recogniser: Recogniser, path: str | Path, top: int, trim: bool) -> FileRecognition:
    name = replace_undecodable(str(path))
    try:
        sample_rate, samples = decode_sound(read_sound_file(path))
        samples = trim_silence(samples, sample_rate) if trim else samples
        return FileRecognition(name, recogniser.recognise(samples, sample_rate)[:top])
    except OSError as error:
        return FileRecognition(name, [], f"cannot be read: {error.strerror}")
    except SoundError as error:
        return FileRecognition(name, [], str(error))
