"""The commands of the recogniser: `cwrnn words train` makes one, `cwrnn words recognise` uses it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..experiments import paper
from ..experiments.errors import ExperimentError
from ..experiments.limits import LARGEST_SIZE
from ..experiments.networks.methods import METHODS
from ..experiments.sweep.batches import MOST_RUNS
from ..experiments.words.corpus import BUNDLE
from ..experiments.words.features import SAMPLE_RATES
from ..experiments.words.recogniser.model import Decision, Recogniser
from ..experiments.words.recogniser.recognition import (
    DEFAULT_TOP,
    FileRecognition,
    format_decision,
    list_candidates,
    recognise,
    recognise_stream,
)
from ..experiments.words.recogniser.training import DEFAULT_SIZE, train_recogniser
from ..experiments.words.sound_files import SoundError
from ..experiments.words.training import MOST_EPOCHS
from . import options
from .console import guard_output, handle_errors, print_json, print_result, show_progress

TRAIN_EXAMPLES = """examples:

\b
cwrnn words train --out words.safetensors                    the bundled words, which are synthetic speech
cwrnn words train --data folder:recordings --out mine.safetensors
cwrnn words train --data timit:/corpora/TIMIT --runs 8 --out timit.safetensors
cwrnn words train --words making,walking,cooking --size 2500 --out three.safetensors
cwrnn words train --schedule 1:40,2:30,4:20,8:10 --out own.safetensors
cwrnn words train --method cw-lstm --out lstm.safetensors    LSTM cells with clocks

exit codes: 0 the model is written, 1 an error, 2 wrong usage, 130 interrupted
"""

RECOGNISE_EXAMPLES = """examples:

\b
cwrnn words recognise words.safetensors making.wav
cwrnn words recognise words.safetensors --trim --top 1 --json *.flac
arecord -q -t raw -f S16_LE -c 1 -r 16000 | cwrnn words recognise words.safetensors --stream
ffmpeg -v error -i making.mp3 -f s16le -ac 1 -ar 48000 - | cwrnn words recognise words.safetensors --stream --rate 48000

exit codes: 0 all files are recognised, 1 a file cannot be used, or another error, 2 wrong usage, 130 interrupted
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train a recogniser of spoken words, and use it.")


@app.command("train", epilog=TRAIN_EXAMPLES)
def train_command(
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The safetensors file to write.")],
    data: options.Words = BUNDLE,
    vocabulary: options.Vocabulary = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(METHODS),
            help="The network: a simple recurrent network, an LSTM, a Clockwork RNN, a GRU, or LSTM or GRU cells with "
            "clocks.",
        ),
    ] = "cw",
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST_SIZE,
            metavar="N",
            help="About how many parameters the network has.",
            show_default=str(DEFAULT_SIZE),
        ),
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**5, metavar="N", help="The number of hidden units, in place of --size.", show_default=False
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="The period and the size of each module, as in 1:40,2:30,4:20, in place of --size.",
            show_default=f"{paper.WORDS_MODULES} modules of periods 1, 2, 4, ...",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_RUNS,
            metavar="N",
            help="How many initial weights to try. The network with the lowest cross entropy on the training words is "
            "kept; the test words choose nothing.",
        ),
    ] = 1,
    seed: options.Seed = 0,
    learning_rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="The learning rate.", show_default="that of `cwrnn reproduce words`"),
    ] = None,
    noise: options.Noise = paper.WORDS_NOISE,
    epochs: options.WordEpochs = MOST_EPOCHS,
    force: Annotated[bool, typer.Option("--force", help="Replace MODEL if it exists.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network to tell spoken words apart, as the paper did (section 4.2), and write it to a file.

    The file holds everything that recognising needs: weights, schedule, feature settings, normalisation and words. Cut
    recordings tightly around their words, for training and for recognising.

    In Python: cwrnn.experiments.train_recogniser.
    """
    with handle_errors():
        with show_progress(quiet=quiet, unit="epochs", lines=False) as progress:
            trained = train_recogniser(
                out,
                data=data,
                words=options.parse_words(vocabulary),
                method=method,
                size=size,
                hidden=hidden,
                schedule=schedule,
                runs=runs,
                seed=seed,
                learning_rate=learning_rate,
                noise=noise,
                epochs=epochs,
                force=force,
                progress=progress,
            )
        print_result(trained, as_json=as_json)


@app.command("recognise", epilog=RECOGNISE_EXAMPLES)
def recognise_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The file that `cwrnn words train` wrote.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="A recording of one word: WAV, FLAC, OGG or NIST SPHERE."),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many words to print, the most probable first.")
    ] = DEFAULT_TOP,
    trim: Annotated[bool, typer.Option("--trim", help="Leave out the silence before and after the word.")] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Recognise standard input while it arrives: raw samples, 16 bits, little-endian, one channel.",
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
    """Recognise spoken words, and print the most probable ones with their probabilities.

    The network takes every sound for one of its words. It was trained on words that were cut tightly: silence before or
    after the word, which --trim leaves out, or a second word make it less sure or wrong.

    In Python: cwrnn.experiments.recognise and cwrnn.experiments.recognise_stream.
    """
    _check_input(files, trim, stream, rate)
    with handle_errors():
        recogniser = Recogniser.load(model)
        if stream:
            _recognise_standard_input(recogniser, rate, top, as_json)
            return
        result = recognise(recogniser, files or [], top=top, trim=trim, on_file=None if as_json else _print_file)
        if as_json:
            print_json(result.to_dict())
        for failed in result.failed:
            print(f"cwrnn: {failed}", file=sys.stderr)
        if result.failed:
            raise typer.Exit(1)


def _check_input(files: list[Path] | None, trim: bool, stream: bool, rate: int | None) -> None:
    """Refuse options that contradict each other."""
    if stream and files:
        raise typer.BadParameter("reads standard input, and takes no FILE", param_hint="--stream")
    if stream and trim:
        raise typer.BadParameter("cannot be used with --stream: the end of the word is not known", param_hint="--trim")
    if rate is not None and not stream:
        raise typer.BadParameter("needs --stream: a sound file has its own sample rate", param_hint="--rate")
    if not stream and not files:
        raise typer.BadParameter("name at least one, or read standard input with --stream", param_hint="FILE")
    if stream and sys.stdin is None:
        raise typer.BadParameter("there is no standard input: pipe samples into it", param_hint="--stream")
    if stream and sys.stdin.isatty():
        raise typer.BadParameter("standard input is a terminal: pipe samples into it", param_hint="--stream")


def _print_file(result: FileRecognition) -> None:
    if result.error is None:
        with guard_output():
            print(result)


def _recognise_standard_input(recogniser: Recogniser, rate: int | None, top: int, as_json: bool) -> None:
    display = StreamDisplay(top, as_json)
    try:
        result = recognise_stream(
            recogniser, sys.stdin.buffer, sample_rate=rate, top=top, on_decisions=display.show_decisions
        )
    except KeyboardInterrupt:
        display.show_end()
        raise
    except SoundError as error:
        raise ExperimentError(f"standard input: {error}") from error
    display.show_end()
    if result.is_cut:
        print("cwrnn: standard input ends within a sample: its last byte is left out", file=sys.stderr)
    print(
        f"{result.seconds:.2f} s of sound, {result.busy_seconds:.3f} s of one core: "
        f"{result.busy_seconds / result.seconds:.4f} of real time",
        file=sys.stderr,
    )


class StreamDisplay:
    """Shows the current decision: on a terminal as one line that changes, elsewhere as a line for every new word."""

    def __init__(self, top: int, as_json: bool) -> None:
        self._top, self._as_json = top, as_json
        self._on_terminal = not as_json and self.is_terminal()
        self._last: Decision | None = None

    @staticmethod
    def is_terminal() -> bool:
        """Return whether standard output is a terminal, where a line can be replaced."""
        return sys.stdout.isatty()

    def show_decisions(self, decisions: list[Decision]) -> None:
        """Show the decisions for the next frames."""
        lines = []
        for decision in decisions:
            if self._as_json:
                shown = {"time": decision.time, "word": decision.word, "probability": decision.probability}
                lines.append(json.dumps(shown))
            elif not self._on_terminal and (self._last is None or decision.word != self._last.word):
                lines.append(format_decision(decision, 1))
            self._last = decision
        with guard_output():
            if self._on_terminal and decisions:
                # return to the start of the line, and clear it
                print(f"\r\x1b[K{format_decision(decisions[-1], 1)}", end="")
            elif lines:
                print("\n".join(lines))

    def show_end(self) -> None:
        """Show the last decision."""
        if self._last is None:
            return
        with guard_output():
            if self._as_json:
                words = list_candidates(self._last.candidates[: self._top])
                print(json.dumps({"time": self._last.time, "words": words, "final": True}))
            else:
                print("\r\x1b[K" * self._on_terminal + f"{format_decision(self._last, self._top)}  in the end")
