"""Loading: the data that a command names, or a word on what is wrong with them."""

from collections.abc import Sequence

import typer

from ..experiments.generation import music as audio
from ..experiments.sweep.run import Dataset
from ..experiments.words import corpus
from ..experiments.words.corpus import Corpus, CorpusError, WordsError
from .console import show_counts


def load_sequences(sources: Sequence[str], offset: float, length: int) -> list[Dataset]:
    """The sequences of sources, as `load_sequences` knows them."""
    try:
        return audio.load_sequences(sources, offset=offset, length=length)
    except audio.MusicError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from error


def load_corpus(source: str, vocabulary: str | None, quiet: bool) -> Corpus:
    """The words of a source, as `corpus.load_corpus` knows them; some of them only, if a list names them."""
    try:
        chosen = None if vocabulary is None else [word.strip() for word in vocabulary.split(",")]
        with show_counts("reading the words", quiet=quiet) as show:
            return corpus.load_corpus(
                source, words=chosen, progress=lambda progress: show(progress.done, progress.total)
            )
    except WordsError as error:
        raise typer.BadParameter(str(error), param_hint="--words") from error
    except CorpusError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from error
