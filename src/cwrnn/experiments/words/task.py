"""The task of spoken words (section 4.2 of the paper): networks learn to tell recordings of words apart."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...saved import SavedNetwork
from .. import paper
from ..errors import ArgumentError
from ..networks.methods import MODELS
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from ..progress import ProgressCallback
from ..report.draws import DrawSummary, summarise_draws
from ..sweep.run import Record, Run
from ..tables import Table
from ..task import Task
from . import bundle, plan, training
from .clips import TEST, TRAIN
from .corpus import Corpus
from .draws import load_draws
from .features import FeatureSettings
from .objective import WordObjective

if TYPE_CHECKING:
    from ..inspect.inspected import InspectedNetwork, InspectionOptions
    from ..report.chapter import Chapter
    from ..sweep.store import Store


SECONDS_PER_STEP = {
    "srn": (0.7e-6, 1.2e-10),
    "lstm": (0.9e-6, 3.0e-10),
    "cw": (0.75e-6, 0.8e-10),
    "gru": (0.83e-6, 1.4e-10),
    "cw-lstm": (1.0e-6, 0.85e-10),
    "cw-gru": (0.95e-6, 0.85e-10),
    # no kernel runs the models, so the number of their steps counts for more than their size
    **dict.fromkeys(MODELS, (40e-6, 1e-9)),
    # fitted in one pass, whatever the number of epochs
    "esn": (5e-8, 0.0),
}
"""The seconds of a frame of training, by method: for the network, and for each of its parameters.

They include the evaluation of training and test set after every epoch."""


class Words(Task[Corpus]):
    """Spoken words. The error is the share of the test set that is taken for another word."""

    name, search_name, title = "words", "words search", "spoken words"
    error_name, error_is_a_share = "error rate", True
    table_title = "Spoken words: the share of the test set that is taken for another word"
    data_kind, takes_one_source, inspects_saved = Corpus.kind, True, True
    settings = training.WordSettings
    most_epochs = training.MOST_EPOCHS
    clocks_size = paper.WORDS_SIZES[2]
    sizes, modules = paper.WORDS_SIZES, paper.WORDS_MODULES
    learning_rates, paper_learning_rates = plan.LEARNING_RATES, paper.WORDS_LEARNING_RATES
    paper_errors = paper.WORDS_ERRORS
    learned_epochs, learned_rate, choice_name = 200, 0.01, "cross entropy"
    errors_caption = "Errors in percent of the test set"
    searched_learning_rates = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)

    def load(
        self,
        sources: Sequence[str | Table],
        progress: ProgressCallback | None = None,
        *,
        words: Sequence[str] | None = None,
        draws: int = 1,
        **options: Any,
    ) -> list[Corpus]:
        """The corpora of each source, one per draw: "bundle", "timit:PATH", "nltk-timit:PATH" or "folder:PATH"."""
        for source in sources:
            if isinstance(source, Table):
                raise ArgumentError("data", f"expected recordings of words, got the table {source.name!r}")
        return [
            corpus for source in sources for corpus in load_draws(str(source), draws, words=words, progress=progress)
        ]

    def plan(self, data: Sequence[Corpus], **options: Any) -> list[Run]:
        """Every run: each method in each size on each corpus with each seed."""
        return [run for corpus in data for run in plan.plan(corpus, **options)]

    def plan_search(self, data: Sequence[Corpus], **options: Any) -> list[Run]:
        """Every run of the search: those of `plan` with each learning rate."""
        return [run for corpus in data for run in plan.plan_search(corpus, **options)]

    def train(
        self, runs: Sequence[Run], data: Sequence[Corpus], progress: Callable[[float], None] | None = None
    ) -> list[TrainingResult]:
        """The results of runs that differ in nothing but the seed."""
        first, corpus = runs[0], data[0]
        assert isinstance(first.settings, training.WordSettings)
        sets = corpus.normalised(TRAIN), corpus.normalised(TEST)
        seeds = [run.seed for run in runs]
        return training.train_many(first.method, first.hidden, *sets, seeds, first.settings, progress=progress)

    def choice_error(self, record: Record) -> float:
        """The lowest cross entropy of the training set, which is the second column of the curve."""
        assert record.curve is not None
        return float(record.curve[:, 1].min())

    def make_objectives(
        self, data: Sequence[Corpus], runs: int, seed: int
    ) -> Sequence[tuple[WordObjective, list[int]]]:
        """All networks learn the words of each corpus at once."""
        return [(WordObjective(corpus), list(range(seed, seed + runs))) for corpus in data]

    def batch_key(self, data: Corpus) -> Hashable:
        """Runs on one corpus are trained at once."""
        return data.digest

    def estimate_seconds(self, run: Run, data: Corpus) -> float:
        """The usual number of epochs times the frames of the training set times the cost of a frame."""
        fixed, per_parameter = SECONDS_PER_STEP[run.method]
        frames = sum(len(utterance.features) for utterance in data.train)
        return run.settings.usual_epochs * frames * (fixed + per_parameter * run.parameters)

    def network_shape(self, data: Corpus) -> tuple[int, int]:
        """One input per feature, one output per word."""
        return data.settings.channels, len(data.words)

    def signal(self, data: Corpus) -> NDArray[np.float64]:
        """(time, channels): the normalised features of all training words, one after the other."""
        return np.concatenate([features for features, _ in data.normalised(TRAIN)]).astype(np.float64)

    def describe_errors(self, data: Sequence[Corpus], runs: int, settings: TrainingSettings) -> str:
        """The caption: the meaning of the error, and the runs and words that it covers."""
        draws = f" for each of {len(data)} draws of the speakers" if len(data) > 1 else " each"
        return (
            f"Errors in percent over the runs that finished: {runs} initial weights{draws}; ± is the standard "
            f"deviation. The words are {data[0].source}. Paper: mean and deviation over {paper.RUNS} runs of its "
            "largest networks, on words of TIMIT (table 3)."
        )

    def summarise_draws(self, records: Sequence[Record], data: Sequence[Corpus]) -> DrawSummary | None:
        """The spread of the errors over draws of the speakers, and tests over them; None for one draw."""
        return summarise_draws(records, {corpus.name: corpus.draw for corpus in data})

    def inspect_record(
        self, record: Record, data: Corpus, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """The network, with the test words of its corpus or of another source."""
        # imported here because the recogniser imports this module
        from .inspected import inspect_record

        return inspect_record(record, data, facts, options)

    def inspect_saved(
        self, saved: SavedNetwork, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """The network of a recogniser, with the bundled words or those of another source."""
        from .inspected import inspect_saved

        return inspect_saved(saved, facts, options)

    def pack(self, data: Corpus) -> tuple[dict[str, Any], bytes]:
        """Words, speakers and lengths, and the features as float32."""
        features, lengths = bundle.join_features(data)
        about = {**bundle.describe_corpus(data), "lengths": lengths.tolist()}
        return about, np.ascontiguousarray(features, dtype="<f4").tobytes()

    def unpack(self, name: str, source: str, about: dict[str, Any], numbers: bytes) -> Corpus:
        """The corpus that was packed."""
        channels = FeatureSettings(**about["settings"]).channels
        features = np.frombuffer(numbers, dtype="<f4").reshape(-1, channels)
        return bundle.assemble_corpus(about, features, np.array(about["lengths"]))

    def make_chapter(self, store: "Store") -> "Chapter | None":
        """The chapter of `chapter.py`."""
        # imported here because the chapter imports this module
        from .chapter import make_chapter

        return make_chapter(store)

    @property
    def figure_titles(self) -> Mapping[str, str]:
        """The titles of `chapter.py`."""
        from .chapter import TITLES

        return TITLES


WORDS = Words()
