"""The command line of the recogniser: `cwrnn words train` makes one, `cwrnn words recognise` uses it."""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..experiments.errors import ExperimentError
from ..experiments.file_names import replace_undecodable
from ..experiments.networks.build import WORD_MODULES, WORD_SIZES, hidden_for
from ..experiments.sweep.batches import MOST_RUNS, use_one_thread
from ..experiments.sweep.interrupts import interrupts
from ..experiments.words import corpus as corpora
from ..experiments.words import plan as words
from ..experiments.words import training as classification
from ..experiments.words.corpus import Corpus
from ..experiments.words.features import SAMPLE_RATES
from ..experiments.words.recogniser import (
    Decision,
    NothingLearntError,
    Recogniser,
    Trained,
    cross_entropy,
    train,
    trimmed,
)
from ..experiments.words.sound_files import SoundError, decode_sound
from ..extras import require
from ..saved import ModelError
from ..schedule import Schedule
from . import options
from .console import guard_output, handle_errors, show_counts
from .loading import load_corpus

SIZE = max(WORD_SIZES)
METHODS = ("srn", "cw")

CHUNK = 2048
"""Bytes of a stream that are heard at once, at most: 64 ms at 16 kHz."""
SOUND_FILES = (b"RIFF", b"fLaC", b"OggS", b"NIST", b"FORM", b"ID3")
"""What a stream never begins with."""

TRAIN_EXAMPLES = """examples:

\b
cwrnn words train --out words.safetensors                    the bundled words, which are synthetic speech
cwrnn words train --data folder:recordings --out mine.safetensors
cwrnn words train --data timit:/corpora/TIMIT --runs 8 --out timit.safetensors
cwrnn words train --words making,walking,cooking --size 2500 --out three.safetensors
cwrnn words train --schedule 1:40,2:30,4:20,8:10 --out own.safetensors

exit codes: 0 the model is written, 1 an error, 2 wrong usage, 130 interrupted
"""

RECOGNISE_EXAMPLES = """examples:

\b
cwrnn words recognise words.safetensors making.wav
cwrnn words recognise words.safetensors --trim --top 1 --json *.flac
arecord -q -t raw -f S16_LE -c 1 -r 16000 | cwrnn words recognise words.safetensors --stream
ffmpeg -v error -i making.mp3 -f s16le -ac 1 -ar 48000 - | cwrnn words recognise words.safetensors --stream --rate 48000

exit codes: 0 all is well, 1 a file cannot be used, or an error, 2 wrong usage, 130 interrupted
"""

LONGEST_NAME = 200
"""Of a model's file, in bytes: it is written under a longer one first."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train a recogniser of spoken words, and use it.")


@app.command("train", epilog=TRAIN_EXAMPLES)
def train_command(
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The file to write: safetensors.")],
    data: options.Words = corpora.BUNDLE,
    vocabulary: options.Vocabulary = None,
    method: Annotated[str, typer.Option(metavar="srn|cw", help="Which network.")] = "cw",
    size: Annotated[
        int | None,
        typer.Option(min=1, max=options.LARGEST, metavar="N", help="Its parameters, about.", show_default=str(SIZE)),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(min=1, max=10**5, metavar="N", help="Or its hidden units.", show_default=False)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Or the period and the size of each module, as in 1:40,2:30,4:20.",
            show_default=f"{WORD_MODULES} modules of periods 1, 2, 4, ...",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_RUNS,
            metavar="N",
            help="Initial weights to try. The network is kept whose cross entropy of the training words is lowest, "
            "never the one that does best in the test.",
        ),
    ] = 1,
    seed: options.Seed = 0,
    learning_rate: Annotated[float, typer.Option(metavar="R", help="Of the gradient.")] = words.LEARNING_RATES["cw"],
    noise: options.Noise = classification.Settings.noise,
    epochs: options.WordEpochs = classification.EPOCHS,
    force: Annotated[bool, typer.Option("--force", help="Replace MODEL if it is there.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network to tell spoken words apart, as the paper did (section 4.2), and write it to a file.

    The file holds all that recognising takes: weights, schedule, feature settings, normalisation and words. Recordings
    should be cut tightly around their words, and those to be recognised likewise.
    """
    _check_out(out, force)
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise typer.BadParameter(f"expected a number above 0, got {learning_rate}", param_hint="--learning-rate")
    options.check_noise(noise)
    if method not in METHODS:
        raise typer.BadParameter(f"expected one of {', '.join(METHODS)}, got {method!r}", param_hint="--method")
    given = [
        name for name, value in (("--size", size), ("--hidden", hidden), ("--schedule", schedule)) if value is not None
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"give one of {' and '.join(given)}", param_hint=given[-1])
    corpus = load_corpus(data, vocabulary, quiet)
    settings = classification.Settings(
        learning_rate=learning_rate,
        epochs=epochs,
        noise=noise,
        inputs=corpus.settings.channels,
        outputs=len(corpus.words),
    )
    clocks = _schedule(method, size, hidden, schedule, settings)
    with handle_errors():
        # all that is needed at the end, before time is spent on training
        require("safetensors", extra="experiments", purpose="saving networks")
        started = time.monotonic()
        trained = _train(corpus, clocks, settings, range(seed, seed + runs), quiet)
        seconds = time.monotonic() - started
        trained.recogniser.save(out)
        with guard_output():
            if as_json:
                print(json.dumps(_summary(trained, corpus, out, seconds), allow_nan=False))
            else:
                print("\n".join(_report(trained, corpus, out, seconds)))


@app.command("recognise", epilog=RECOGNISE_EXAMPLES)
def recognise_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What `cwrnn words train` wrote.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="A recording of one word each: WAV, FLAC, OGG, NIST SPHERE."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many words to print, the likeliest first.")] = 3,
    trim: Annotated[bool, typer.Option("--trim", help="Leave out the silence before and after the word.")] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Hear standard input: raw samples, 16 bits, little-endian, one channel.",
        ),
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            min=SAMPLE_RATES[0],
            max=SAMPLE_RATES[1],
            metavar="HZ",
            help="With --stream: samples per second.",
            show_default="16000",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object; with --stream, one for every frame and one for the end."),
    ] = False,
) -> None:
    """Recognise words: print those that it may be, with their probabilities.

    The network takes every sound for one of its words. It was trained on words that were cut tightly: silence before
    or after a word, which --trim leaves out, or a second word make it less sure or wrong.
    """
    if stream and files:
        raise typer.BadParameter("hears standard input, and takes no FILE", param_hint="--stream")
    if stream and trim:
        raise typer.BadParameter("is not for --stream: where a word ends is not known before", param_hint="--trim")
    if rate is not None and not stream:
        raise typer.BadParameter("is for --stream: a file knows its own", param_hint="--rate")
    if not stream and not files:
        raise typer.BadParameter("name at least one, or hear standard input with --stream", param_hint="FILE")
    if stream and sys.stdin is None:
        raise typer.BadParameter("there is no standard input: pipe samples into it", param_hint="--stream")
    if stream and sys.stdin.isatty():
        raise typer.BadParameter("standard input is a terminal: pipe samples into it", param_hint="--stream")
    with handle_errors(), use_one_thread():
        try:
            recogniser = Recogniser.load(model)
        except ModelError as error:
            raise ExperimentError(replace_undecodable(str(error))) from error
        if stream:
            _listen(recogniser, rate, top, as_json)
        elif not _recognise(recogniser, files or [], top, trim, as_json):
            raise typer.Exit(1)


def _check_out(out: Path, force: bool) -> None:
    """Before time is spent on training."""
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder: name a file", param_hint="--out")
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is no file that could be replaced", param_hint="--out")
    if len(os.fsencode(out.name)) > LONGEST_NAME:
        raise typer.BadParameter(f"a name of at most {LONGEST_NAME} bytes, please: {out.name}", param_hint="--out")
    if out.exists() and not force:
        raise typer.BadParameter(f"{out} is there already: add --force to replace it", param_hint="--out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make its folder: {error.strerror}", param_hint="--out") from error
    if not os.access(out.parent, os.W_OK):
        raise typer.BadParameter(f"nothing can be written in {out.parent}", param_hint="--out")


def _schedule(
    method: str, size: int | None, hidden: int | None, spec: str | None, settings: classification.Settings
) -> Schedule:
    name = "--schedule" if spec is not None else "--hidden" if hidden is not None else "--size"
    try:
        if spec is not None:
            found = Schedule.parse(spec)
            if method == "srn" and found.periods != (1,):
                raise ValueError(f"an SRN has one module of period 1, got {spec}")
            return found
        if hidden is None:
            hidden = hidden_for(
                method,
                SIZE if size is None else size,
                input_size=settings.inputs,
                output_size=settings.outputs,
                modules=settings.modules,
            )
        return Schedule.exponential(hidden, settings.modules if method == "cw" else 1)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from error


def _train(corpus: Corpus, schedule: Schedule, settings: classification.Settings, seeds: range, quiet: bool) -> Trained:
    with show_counts("training", quiet=quiet) as show:

        def progress(epochs: int) -> None:
            interrupts.check()
            show(epochs, max(epochs, settings.usual_epochs))

        try:
            return train(corpus, schedule, settings, seeds=seeds, progress=progress)
        except (ModelError, NothingLearntError) as error:
            raise ExperimentError(str(error)) from error


def _mistakes(trained: Trained, corpus: Corpus) -> list[tuple[str, str, int]]:
    """A word, what it was taken for in the test, and how often: the most frequent first."""
    taken = np.asarray(trained.result.output).argmax(axis=1)
    pairs = ((each.word, corpus.words[i]) for each, i in zip(corpus.test, taken, strict=True))
    counts = Counter(pair for pair in pairs if pair[0] != pair[1])
    return [(*pair, count) for pair, count in counts.most_common()]


def _report(trained: Trained, corpus: Corpus, out: Path, seconds: float) -> Iterator[str]:
    saved, result = trained.recogniser.saved, trained.result
    mistakes = _mistakes(trained, corpus)
    wrong = sum(count for *_, count in mistakes)
    name = "an SRN" if saved.method == "srn" else f"a Clockwork RNN of {saved.schedule.modules} modules"
    yield (
        f"{len(corpus.words)} words ({replace_undecodable(corpus.source)}), {name} with "
        f"{saved.schedule.hidden_size} units: "
        f"trained in {seconds:.0f} s, {result.best_epoch} epochs"
    )
    if len(trained.results) > 1:
        yield (
            f"chosen by the cross entropy of the training words: run {trained.chosen + 1} of {len(trained.results)}, "
            f"{cross_entropy(result):.2g}"
        )
    yield f"test: {wrong} of {len(corpus.test)} taken for another word, {100 * result.error:.1f} %"
    for word, other, count in mistakes[:10]:
        yield f"  {word} taken for {other}{f', {count} times' if count > 1 else ''}"
    if len(mistakes) > 10:
        yield f"  and {sum(count for *_, count in mistakes[10:])} more"
    yield f"The model is {replace_undecodable(str(out.resolve()))}"


def _summary(trained: Trained, corpus: Corpus, out: Path, seconds: float) -> dict[str, Any]:
    saved = trained.recogniser.saved
    return {
        "model": replace_undecodable(str(out.resolve())),
        "method": saved.method,
        "schedule": saved.schedule.spec,
        "words": list(corpus.words),
        "seconds": seconds,
        "mistakes": [{"word": word, "taken_for": other, "count": n} for word, other, n in _mistakes(trained, corpus)],
        **trained.recogniser.training,
    }


def _recognise(recogniser: Recogniser, files: list[Path], top: int, trim: bool, as_json: bool) -> bool:
    """Whether all files could be used; the others are printed all the same."""
    found: list[dict[str, Any]] = []
    problems = []
    for file in files:
        name = replace_undecodable(str(file))
        try:
            rate, samples = decode_sound(file.read_bytes())
            ranked = recogniser.recognise(trimmed(samples, rate) if trim else samples, rate)[:top]
        except (SoundError, OSError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            problems.append(f"{name}: {reason}")
            found.append({"file": name, "error": reason})
            continue
        found.append({"file": name, "words": _listed(ranked)})
        if not as_json:
            with guard_output():
                print(f"{name}: {_told(ranked)}")
    if as_json:
        with guard_output():
            print(json.dumps({"files": found}, allow_nan=False))
    for problem in problems:
        print(f"cwrnn: {problem}", file=sys.stderr)
    return not problems


class _Display:
    """The running decision: a line that changes on a terminal, elsewhere a line when the word changes."""

    def __init__(self, top: int, as_json: bool) -> None:
        self.top, self.as_json = top, as_json
        self.terminal = not as_json and self.is_terminal()
        self.word: str | None = None

    @staticmethod
    def is_terminal() -> bool:
        """Whether the line can change."""
        return sys.stdout.isatty()

    def show(self, decisions: list[Decision]) -> None:
        """The next frames."""
        lines = []
        for each in decisions:
            if self.as_json:
                lines.append(json.dumps({"time": each.time, "word": each.word, "probability": each.probability}))
            elif not self.terminal and each.word != self.word:
                lines.append(_line(each, 1))
            self.word = each.word
        with guard_output():
            if self.terminal and decisions:
                # back to the start of the line, and clear it
                print(f"\r\x1b[K{_line(decisions[-1], 1)}", end="")
            elif lines:
                print("\n".join(lines))

    def end(self, decision: Decision | None) -> None:
        """The last one."""
        if decision is None:
            return
        ranked = decision.ranked[: self.top]
        with guard_output():
            if self.as_json:
                print(json.dumps({"time": decision.time, "words": _listed(ranked), "final": True}))
            else:
                print("\r\x1b[K" * self.terminal + f"{_line(decision, self.top)}  in the end")


def _listen(recogniser: Recogniser, rate: int | None, top: int, as_json: bool) -> None:
    rate = recogniser.settings.rate if rate is None else rate
    listener = recogniser.listen(rate)
    display = _Display(top, as_json)
    samples, busy = 0, 0.0
    try:
        for chunk in _chunks():
            started = time.thread_time()
            decisions = listener.accept(chunk)
            busy += time.thread_time() - started
            samples += len(chunk)
            display.show(decisions)
        started = time.thread_time()
        decisions = listener.finish()
        busy += time.thread_time() - started
        display.show(decisions)
    except KeyboardInterrupt:
        display.end(listener.decision)
        raise
    display.end(listener.decision)
    if listener.decision is None:
        window = recogniser.settings.window
        raise ExperimentError(f"standard input: too short: {1000 * samples / rate:.3g} ms, one window is {window:g} ms")
    heard = samples / rate
    print(f"{heard:.2f} s heard, {busy:.3f} s of one core: {busy / heard:.4f} of real time", file=sys.stderr)


def _chunks() -> Iterator[NDArray[np.float64]]:
    """The samples on standard input, as they come."""
    left = b""
    first = True
    # unlike a buffered read, it returns what there is
    while data := os.read(sys.stdin.fileno(), CHUNK):
        left += data
        if first and left.startswith(SOUND_FILES):
            raise ExperimentError(
                "standard input: this is a sound file, and --stream hears raw samples: name it as FILE"
            )
        first = False
        whole = len(left) // 2 * 2
        yield np.frombuffer(left[:whole], "<i2") / 32768
        left = left[whole:]
    if left:
        print("cwrnn: standard input ends within a sample: its last byte is left out", file=sys.stderr)


def _line(decision: Decision, top: int) -> str:
    return f"{decision.time:7.3f} s  {_told(decision.ranked[:top])}"


def _told(ranked: list[tuple[str, float]]) -> str:
    return ", ".join(f"{word} {100 * probability:.1f} %" for word, probability in ranked)


def _listed(ranked: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "probability": probability} for word, probability in ranked]
