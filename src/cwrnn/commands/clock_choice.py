"""The command that chooses a series of periods by validation: `cwrnn clocks choose`."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.clocks.choice import BESIDE, CHOICES, choose_clocks
from ..experiments.limits import LARGEST_RUNS
from ..experiments.sweep.store_file import FILE
from ..experiments.words.task import WORDS
from . import options
from .clocks_options import EpochsOption, LearningRateOption, MethodOption, ModulesOption
from .console import exit_if_failed, format_command, handle_errors, print_failures, print_result, show_progress
from .options import EngineName

FOLDER = Path("out/choice")

EXAMPLES = """examples:

\b
cwrnn clocks choose --data nltk-timit:/nltk_data/corpora/timit           bases 2, 3 and 4, ten draws
cwrnn clocks choose --draws 5 --size 2500 --runs 5                       the bundled words
cwrnn clocks choose --data folder:recordings --series exponential-2,fibonacci --beside lstm,gru

exit codes: 0 every run has a record and none failed, 1 failed runs or another error, 2 wrong usage, 130 interrupted
"""


def choose(
    context: typer.Context,
    data: options.Words = "bundle",
    vocabulary: options.Vocabulary = None,
    draws: options.Draws = 10,
    validation: Annotated[
        int,
        typer.Option("--validation", min=1, metavar="N", help="Training speakers of each word that judge the series."),
    ] = 1,
    series: Annotated[
        str, typer.Option("--series", metavar="LIST", help="Series to choose from; the first one is tested too.")
    ] = ",".join(CHOICES),
    beside: Annotated[
        str,
        typer.Option(
            "--beside", metavar="LIST", help="Methods that are trained and tested on the same draws; may be empty."
        ),
    ] = ",".join(BESIDE),
    method: MethodOption = "cw",
    size: Annotated[
        int, typer.Option("--size", min=1, metavar="N", help="Number of parameters of every network, at most.")
    ] = WORDS.sizes[-1],
    modules: ModulesOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=LARGEST_RUNS, metavar="N", help="Networks for each series and draw.")
    ] = 3,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    seed: options.Seed = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.make_out_option(FOLDER, help="Folder for the store.")] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Choose a series of periods for spoken words on a part of the training speakers, and test the choice.

    For each draw of the speakers, networks with each series learn the words of some training speakers and are judged by
    the others. The best series then learns all of them and is tested, beside the first series and other methods.
    """
    folder = out or FOLDER
    with handle_errors(context.obj):
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = choose_clocks(
                data,
                words=options.parse_words(vocabulary),
                draws=draws,
                validation=validation,
                series=[name.strip().lower() for name in series.split(",")],
                beside=options.parse_methods(beside) if beside.strip() else [],
                method=method,
                size=size,
                modules=modules,
                runs=runs,
                epochs=epochs,
                learning_rate=learning_rate,
                seed=seed,
                out=folder,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
            )
        print_result(result, as_json=as_json, aside=None if quiet else result)
        print_failures(result.failures)
        exit_if_failed(result.failures)
