"""Draws: a seed chooses, for each word anew, which speakers train the networks and which test them.

    pool, all speakers of each word  ->  draw 0, draw 1, ...  ->  corpora of seven speakers per word, five and two

The paper has one draw. With so few recordings the choice of the speakers moves the mean error by several points, and no
number of initial weights averages that out, so a comparison of methods needs several draws, which all methods share.

The seed of a draw is `Corpus.draw`, and its corpus has a name of its own, such as "nltk-timit, draw 3": runs, their
keys and stores know the draw by it. Draw 0 is the corpus that is loaded without draws, wherever that one has seven
speakers for each word.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from .. import paper
from ..errors import ArgumentError
from ..limits import LARGEST_DRAWS, check_count
from ..progress import ProgressCallback
from ..report.numbers import format_count
from .clips import TEST, TRAIN, order_speakers
from .corpus import Corpus, Utterance, load_corpus, name_draw, select_words

TRAINING, TESTING = paper.WORDS_TRAINING_EXAMPLES, paper.WORDS_TEST_EXAMPLES
SPEAKERS = TRAINING + TESTING
"""The speakers that a draw chooses for each word."""


def load_draws(
    data: str | Corpus,
    draws: int = 1,
    *,
    words: Sequence[str] | None = None,
    cache: Path | Literal[False] | None = None,
    progress: ProgressCallback | None = None,
) -> list[Corpus]:
    """Return the corpora of the draws 0 to `draws` - 1, or raise an ArgumentError that says why there are none.

    With one draw, the result is the corpus of `load_corpus` alone, whatever its speakers and its split.

    Args:
        data: a source of `load_corpus`, or a corpus to draw from
        draws: the number of draws
        words: only these words; None for all
        cache: the folder of computed features, as for `load_corpus`
        progress: called after every utterance

    >>> [corpus.name for corpus in load_draws("bundle", 3)]
    ['synthetic', 'synthetic, draw 1', 'synthetic, draw 2']
    """
    draws = check_count("draws", draws, LARGEST_DRAWS)
    if isinstance(data, Corpus):
        pool = data if words is None else select_words(data, words)
    else:
        pool = load_corpus(data, words=words, all_speakers=draws > 1, cache=cache, progress=progress)
    if draws == 1:
        return [pool]
    # without draws, TIMIT is loaded with the seven speakers of draw 0, other sources with all of theirs
    is_timit = not isinstance(data, Corpus) and data.startswith(("timit:", "nltk-timit:"))
    return draw_corpora(pool, draws, first_name=pool.name if is_timit else None)


def draw_corpora(pool: Corpus, draws: int, *, first_name: str | None = None) -> list[Corpus]:
    """Return the corpora of the draws 0 to `draws` - 1 from the utterances of a corpus.

    Raises an ArgumentError if a word has too few speakers, or if two draws are alike.

    Args:
        pool: a corpus in which each speaker says a word only once; its split has no part in the draws after draw 0
        draws: the number of draws
        first_name: the name of draw 0, unless it is the pool itself; None for a name like those of the others
    """
    _check_speakers(pool)
    corpora: list[Corpus] = []
    known: dict[frozenset[tuple[str, str, str]], int] = {}
    for draw in range(draws):
        utterances = _draw_utterances(pool, draw)
        division = frozenset((utterance.word, utterance.speaker, utterance.split) for utterance in utterances)
        same = known.setdefault(division, draw)
        if same != draw:
            raise ArgumentError(
                "draws",
                f"expected at most {draw}, got {draws}: {pool.name} has so few words and speakers that the draws "
                f"{same} and {draw} are the same",
            )
        if draw == 0 and utterances is pool.utterances:
            corpora.append(pool)
            continue
        name = first_name if draw == 0 and first_name is not None else f"{pool.name}{name_draw(draw)}"
        corpora.append(replace(pool, name=name, utterances=utterances, draw=draw))
    return corpora


def hold_out(corpus: Corpus, validation: int) -> Corpus:
    """Return a corpus in which training speakers of each word take the place of the test set, which is left out.

    A choice of hyper-parameters by its errors has heard no test recording.

    Args:
        corpus: a corpus
        validation: how many training speakers of each word to hold out

    >>> from .corpus import load_corpus
    >>> held = hold_out(load_corpus(), 1)
    >>> len(held.train), len(held.test)
    (100, 25)
    """
    speakers = {
        word: order_speakers(word, {each.speaker for each in corpus.train if each.word == word}, corpus.draw)
        for word in corpus.words
    }
    most = min(map(len, speakers.values())) - 1
    check_count("validation", validation, most)
    judges = {(word, speaker) for word, order in speakers.items() for speaker in order[-validation:]}
    utterances = tuple(
        replace(each, split=TEST if (each.word, each.speaker) in judges else TRAIN) for each in corpus.train
    )
    return replace(corpus, name=f"{corpus.name}, validation {validation}", utterances=utterances)


def _draw_utterances(pool: Corpus, draw: int) -> tuple[Utterance, ...]:
    """Return seven utterances of each word, five for training and two for testing."""
    by_word: dict[str, dict[str, Utterance]] = {}
    for utterance in pool.utterances:
        by_word.setdefault(utterance.word, {})[utterance.speaker] = utterance
    splits = Counter((utterance.word, utterance.split) for utterance in pool.utterances)
    is_divided = all(splits[word, TRAIN] == TRAINING and splits[word, TEST] == TESTING for word in by_word)
    if draw == 0 and is_divided:
        return pool.utterances
    return tuple(
        replace(speakers[speaker], split=TRAIN if place < TRAINING else TEST)
        for word, speakers in by_word.items()
        for place, speaker in enumerate(order_speakers(word, speakers, draw)[:SPEAKERS])
    )


def _check_speakers(pool: Corpus) -> None:
    """Raise an ArgumentError unless each word has enough speakers who say it once."""
    spoken = Counter((utterance.word, utterance.speaker) for utterance in pool.utterances)
    speakers = Counter(word for word, _ in spoken)
    problems = [
        f"{word!r} has {format_count(speakers[word], 'speaker')}" for word in pool.words if speakers[word] < SPEAKERS
    ]
    if problems:
        raise ArgumentError(
            "draws",
            f"a draw needs {SPEAKERS} speakers of each word, {TRAINING} for training and {TESTING} for the test, but "
            f"in {pool.name} {', '.join(problems)}: expected 1, or words with enough speakers",
        )
    twice = [(word, speaker) for (word, speaker), count in spoken.items() if count > 1]
    if twice:
        word, speaker = twice[0]
        raise ArgumentError(
            "draws",
            f"in {pool.name} the speaker {speaker!r} says {word!r} {spoken[twice[0]]} times, so that a draw could have "
            "the speaker in training and test: expected 1, or a corpus in which a speaker says a word once",
        )
