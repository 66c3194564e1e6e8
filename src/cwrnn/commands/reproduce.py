"""The commands that repeat the paper's experiments: `cwrnn reproduce`, `reproduce generation` and `reproduce words`."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.file_names import format_page_path
from ..experiments.limits import LARGEST_EPOCHS
from ..experiments.paper import GENERATION_EPOCHS, GENERATION_SEQUENCES, WORDS_NOISE
from ..experiments.reproduction import (
    GENERATION_PAPER,
    GENERATION_QUICK,
    GENERATION_SEARCH,
    WORDS_PAPER,
    WORDS_QUICK,
    WORDS_SEARCH,
    reproduce,
    reproduce_generation,
    reproduce_words,
)
from ..experiments.reproduction_result import Reproduction
from ..experiments.sweep.store_file import FILE
from ..experiments.words.training import MOST_EPOCHS
from . import options
from .console import (
    exit_if_failed,
    format_command,
    handle_errors,
    print_failures,
    print_result,
    show_progress,
)
from .options import DEFAULT_METHODS, EngineName

GENERATION_OUT, GENERATION_SEARCH_OUT = Path("out/generation"), Path("out/search")
WORDS_OUT, WORDS_SEARCH_OUT = Path("out/words"), Path("out/words-search")
BOTH_OUT = Path("out/reproduce")

GENERATION_PAPER_RUNS, WORDS_PAPER_RUNS = GENERATION_PAPER.count_runs(GENERATION_SEQUENCES), WORDS_PAPER.count_runs()

CODES = (
    "exit codes: 0 every run has a record and none failed, 1 failed runs or another error, 2 wrong usage, "
    "130 interrupted"
)

BOTH_EXAMPLES = f"""examples:

\b
cwrnn reproduce                                              both experiments, in three minutes
cwrnn reproduce --out out/both --resume                      continue after an interruption
cwrnn reproduce generation                                   the first experiment alone
cwrnn reproduce words --help                                 the options of the second one

{CODES}
"""

GENERATION_EXAMPLES = f"""examples:

\b
cwrnn reproduce generation                                   the result in two minutes
cwrnn reproduce generation --paper --out out/paper           all of the paper's {GENERATION_PAPER_RUNS} runs
cwrnn reproduce generation --paper --out out/paper --resume  continue after an interruption
cwrnn reproduce generation --data song.flac --offset 12.5    your own music
cwrnn reproduce generation --data snippets/*.wav --runs 20   several sound files
cwrnn reproduce generation --data load.csv --target load     a column of a table, rows 0 to 319
cwrnn reproduce generation --data load.npy --target 2 --offset 5000 --length 500
cwrnn reproduce generation --methods lstm --no-peepholes --out out/plain
cwrnn reproduce generation --methods srn,lstm,cw,gru,cw-lstm,cw-gru --out out/six
cwrnn reproduce generation --search --data song.flac         find the best learning rate
cwrnn reproduce generation --paper --engine dask --scheduler tcp://host:8786 --out out/paper

{CODES}
"""

WORDS_EXAMPLES = f"""examples:

\b
cwrnn reproduce words                                        the result in a minute
cwrnn reproduce words --paper --out out/words-paper          all of the paper's {WORDS_PAPER_RUNS} runs
cwrnn reproduce words --data timit:/corpora/TIMIT            the paper's own data
cwrnn reproduce words --data nltk-timit:/nltk_data/corpora/timit --words she,had,your,dark,suit
cwrnn reproduce words --data folder:recordings --sizes 10000 --runs 20
cwrnn reproduce words --data nltk-timit:/nltk_data/corpora/timit --draws 10 --sizes 10000 --runs 10
cwrnn reproduce words --search --methods lstm                find the best learning rate
cwrnn reproduce words --methods lstm,cw-lstm,gru,cw-gru      gated cells without clocks and with clocks

{CODES}
"""

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True, epilog=BOTH_EXAMPLES)
def both(
    context: typer.Context,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.make_out_option(BOTH_OUT)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Repeat the paper's experiments: both on a small scale and on one page, or the one that you name."""
    if context.invoked_subcommand is not None:
        if (workers, out, resume, as_json, quiet) != (None, None, False, False, False):
            raise typer.BadParameter(f"options go after the name: cwrnn reproduce {context.invoked_subcommand} ...")
        return
    folder = out or BOTH_OUT
    with handle_errors(context.obj):
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = reproduce(
                workers=workers, out=folder, resume=resume, command=format_command(context.obj), progress=progress
            )
        _print_result(result, as_json, quiet)


@app.command("generation", epilog=GENERATION_EXAMPLES)
def generation(
    context: typer.Context,
    # a shell expands --data *.wav to the option and further arguments
    more: Annotated[list[str] | None, typer.Argument(metavar="DATA", hidden=True)] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="bundle|FILE|FOLDER",
            help="The music: bundle (five snippets of a song), a WAV, FLAC or OGG file, or a folder of such files; or "
            "a table: a CSV, .npy or .npz file with a column to generate. May be repeated, and several files may "
            "follow, as in --data *.wav.",
            show_default="bundle",
        ),
    ] = None,
    target: options.Target = None,
    methods: options.Methods = DEFAULT_METHODS,
    sizes: Annotated[
        str | None,
        options.make_sizes_option(GENERATION_QUICK.sizes, GENERATION_PAPER.sizes, GENERATION_SEARCH.sizes),
    ] = None,
    runs: Annotated[
        int | None,
        options.make_runs_option(
            "method, size and sequence", GENERATION_QUICK.runs, GENERATION_PAPER.runs, GENERATION_SEARCH.runs
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, max=LARGEST_EPOCHS, metavar="N", help="Updates of each network.")
    ] = GENERATION_EPOCHS,
    paper: Annotated[bool, options.make_paper_option(GENERATION_PAPER_RUNS)] = False,
    search: options.Search = False,
    seed: options.Seed = 0,
    learning_rate: options.LearningRate = None,
    peepholes: options.Peepholes = True,
    schedule: options.ScheduleOption = None,
    offset: options.Offset = 0.0,
    length: options.Length = None,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.make_out_option(GENERATION_OUT, GENERATION_SEARCH_OUT)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train networks to generate music: the paper's first experiment (section 4.1).

    SRN, LSTM and CW-RNN, or the --methods that you name, with about the same number of parameters learn short sequences
    by heart. Prints their errors beside the paper's, and writes a page with figures and sound.
    """
    folder = out or (GENERATION_SEARCH_OUT if search else GENERATION_OUT)
    with handle_errors(context.obj):
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = reproduce_generation(
                [*(data or []), *(more or [])] or "bundle",
                target=target,
                methods=options.parse_methods(methods),
                sizes=options.parse_sizes(sizes),
                runs=runs,
                epochs=epochs,
                paper=paper,
                search=search,
                seed=seed,
                learning_rate=options.parse_learning_rate(learning_rate),
                peepholes=peepholes,
                schedule=schedule,
                offset=offset,
                length=length,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                out=folder,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
            )
        _print_result(result, as_json, quiet)


@app.command("words", epilog=WORDS_EXAMPLES)
def words(
    context: typer.Context,
    data: options.Words = "bundle",
    vocabulary: options.Vocabulary = None,
    methods: options.Methods = DEFAULT_METHODS,
    sizes: Annotated[
        str | None, options.make_sizes_option(WORDS_QUICK.sizes, WORDS_PAPER.sizes, WORDS_SEARCH.sizes)
    ] = None,
    draws: options.Draws = 1,
    runs: Annotated[
        int | None,
        options.make_runs_option("method, size and draw", WORDS_QUICK.runs, WORDS_PAPER.runs, WORDS_SEARCH.runs),
    ] = None,
    epochs: options.WordEpochs = MOST_EPOCHS,
    paper: Annotated[bool, options.make_paper_option(WORDS_PAPER_RUNS)] = False,
    search: options.Search = False,
    seed: options.Seed = 0,
    learning_rate: options.LearningRate = None,
    peepholes: options.Peepholes = True,
    schedule: options.ScheduleOption = None,
    noise: options.Noise = WORDS_NOISE,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.make_out_option(WORDS_OUT, WORDS_SEARCH_OUT)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train networks to tell spoken words apart: the paper's second experiment (section 4.2).

    SRN, LSTM and CW-RNN, or the --methods that you name, with about the same number of parameters learn words that end
    alike. Prints the share of the test set that they get wrong, beside the paper's, and writes a page with figures. The
    bundled words are synthetic speech.
    """
    folder = out or (WORDS_SEARCH_OUT if search else WORDS_OUT)
    with handle_errors(context.obj):
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = reproduce_words(
                data,
                words=options.parse_words(vocabulary),
                methods=options.parse_methods(methods),
                sizes=options.parse_sizes(sizes),
                draws=draws,
                runs=runs,
                epochs=epochs,
                paper=paper,
                search=search,
                seed=seed,
                learning_rate=options.parse_learning_rate(learning_rate),
                peepholes=peepholes,
                schedule=schedule,
                noise=noise,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                out=folder,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
            )
        _print_result(result, as_json, quiet)


def _print_result(result: Reproduction, as_json: bool, quiet: bool) -> None:
    """Prints tables and page, or JSON with all else on stderr; exits with code 1 if a run failed."""
    assert result.page is not None
    print_result(result, as_json=as_json, aside=format_page_path(result.page) if quiet else result)
    print_failures(result.failures)
    exit_if_failed(result.failures)
