"""Trains LSTMs and Clockwork RNNs on changed copies of word sets, to see which property of the words decides the order.

    bundled words, TIMIT's sample  ->  one property changed  ->  the same networks and draws  ->  a table of errors

    plain      as they are
    resampled  all words faster or slower by one factor, by linear interpolation between frames
    equal      all words with the same number of frames, so that a frame's place in the word is its time
    held       the same with a last frame that is held for a random time, so that the clocks end at random places
    cut        without the first frames, so that all clocks first tick later in the word
    parts      five words that end alike, or five that end differently
    strangers  no speaker of the test set speaks any word of the training set

Run it as ``python tools/compare_word_sets.py --timit PATH --out out/word-sets``. It resumes what `--out` holds.
"""

import argparse
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwrnn.experiments.clocks.series import define_series, fit_budget
from cwrnn.experiments.paper import WORDS_VOCABULARY
from cwrnn.experiments.report.draws import DrawRow, permute_pairs, summarise_draws
from cwrnn.experiments.sweep.driver import open_sweep
from cwrnn.experiments.sweep.run import Record, Run
from cwrnn.experiments.words.clips import TEST, TRAIN, order_speakers
from cwrnn.experiments.words.corpus import Corpus, load_corpus, select_words
from cwrnn.experiments.words.draws import load_draws
from cwrnn.experiments.words.task import WORDS

SIZE, MODULES = 10_000, 7
BASES = (2, 4)
STRANGERS = 5
"""The speakers that only test. The other eleven of TIMIT's sample only train."""

Frames = NDArray[np.float32]


def resample(features: Frames, length: int) -> Frames:
    """Return the features with another number of frames, by linear interpolation."""
    places = np.linspace(0, len(features) - 1, max(2, length))
    return np.stack([np.interp(places, np.arange(len(features)), channel) for channel in features.T], 1).astype("f4")


def hold_end(features: Frames) -> Frames:
    """Return the features with 0 to 15 repetitions of the last frame, a number that the features decide."""
    repetitions = zlib.crc32(features.tobytes()) % 16
    return np.concatenate([features, np.repeat(features[-1:], repetitions, axis=0)])


def change(corpus: Corpus, name: str, make: Callable[[Frames], Frames]) -> Corpus:
    """Return the corpus with other features, under another name."""
    utterances = tuple(replace(each, features=make(each.features)) for each in corpus.utterances)
    return replace(corpus, name=f"{corpus.name}, {name}", utterances=utterances)


def keep_words(corpus: Corpus, name: str, *, alike: bool) -> list[Corpus]:
    """Return five parts of the paper's 25 words in place of draws: its clusters, or one word of each cluster."""
    parts = WORDS_VOCABULARY if alike else tuple(zip(*WORDS_VOCABULARY, strict=True))
    return [
        replace(select_words(corpus, part), name=f"{corpus.name}, {name} {number}", draw=number)
        for number, part in enumerate(parts)
    ]


def keep_strangers(pool: Corpus, draw: int) -> Corpus:
    """Return five training speakers of each word out of eleven, and two test speakers out of five others."""
    everyone = order_speakers("all words", {each.speaker for each in pool.utterances}, draw)
    testing = set(everyone[:STRANGERS])
    utterances = []
    for word in pool.words:
        spoken = {each.speaker: each for each in pool.utterances if each.word == word}
        for split, count, group in ((TRAIN, 5, spoken.keys() - testing), (TEST, 2, spoken.keys() & testing)):
            for speaker in order_speakers(word, group, draw)[:count]:
                utterances.append(replace(spoken[speaker], split=split))
    return replace(pool, name=f"{pool.name}, strangers, draw {draw}", utterances=tuple(utterances), draw=draw)


def make_sets(timit: Path, draws: int) -> dict[str, list[Corpus]]:
    """Return the corpora of all draws of each set."""
    bundled, sample = load_draws("bundle", draws), load_draws(f"nltk-timit:{timit}", draws)
    pool = load_corpus(f"nltk-timit:{timit}", all_speakers=True)

    def change_all(corpora: list[Corpus], name: str, make: Callable[[Frames], Frames]) -> list[Corpus]:
        return [change(corpus, name, make) for corpus in corpora]

    return {
        "bundled, plain": bundled,
        "bundled, 0.4 times as long": change_all(bundled, "short", lambda x: resample(x, round(0.4 * len(x)))),
        "bundled, all of 60 frames": change_all(bundled, "equal", lambda x: resample(x, 60)),
        "bundled, all of 60 frames and a held end": change_all(bundled, "held", lambda x: hold_end(resample(x, 60))),
        "bundled, first 5 frames cut": change_all(bundled, "cut", lambda x: x[5:]),
        "bundled, 5 words that end alike": keep_words(bundled[0], "alike", alike=True),
        "bundled, 5 words that end differently": keep_words(bundled[0], "different", alike=False),
        "TIMIT, plain": sample,
        "TIMIT, 2.5 times as long": change_all(sample, "long", lambda x: resample(x, round(2.5 * len(x)))),
        "TIMIT, test by strangers": [keep_strangers(pool, draw) for draw in range(draws)],
    }


def plan_networks(corpora: list[Corpus], runs: int) -> dict[str, list[Run]]:
    """Return the runs of LSTMs and of Clockwork RNNs with each base on the corpora of one set."""
    shape = corpora[0].settings.channels, len(corpora[0].words)
    planned = {"LSTM": WORDS.plan(corpora, methods=["lstm"], sizes=[SIZE], runs=runs)}
    for base in BASES:
        schedule = fit_budget(define_series(f"exponential-{base}", MODULES), MODULES, SIZE, *shape)
        planned[f"CW-RNN, base {base}"] = WORDS.plan(corpora, methods=["cw"], schedule=schedule, runs=runs)
    return planned


def summarise(records: list[Record], corpora: list[Corpus]) -> DrawRow:
    """Return the errors of one network over the draws."""
    summary = summarise_draws(records, {corpus.name: corpus.draw for corpus in corpora})
    assert summary is not None
    [row] = summary.rows
    return row


def main() -> None:
    """Train on every set, and print and write the errors."""
    parser = argparse.ArgumentParser(description="Compare word sets of which one property was changed.")
    parser.add_argument("--timit", type=Path, required=True, help="the folder of TIMIT's sample, as NLTK has it")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the store and of word_sets.json")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    sets = make_sets(asked.timit, asked.draws)
    results: dict[str, dict[str, Any]] = {}
    with open_sweep(asked.out, workers=asked.workers, resume=True, command="tools/compare_word_sets.py") as sweep:
        for name, corpora in sets.items():
            planned = plan_networks(corpora, asked.runs)
            sweep.train(corpora, [run for runs in planned.values() for run in runs])
            rows = {network: summarise(sweep.select(runs), corpora) for network, runs in planned.items()}
            results[name] = {
                network: {
                    "mean": row.mean,
                    "between": row.between,
                    "within": row.within,
                    "p": permute_pairs(list(row.means.values()), list(rows["LSTM"].means.values())),
                }
                for network, row in rows.items()
            }
            means = [
                f"{network} {100 * row.mean:.1f} ± {100 * (row.between or 0):.1f}" for network, row in rows.items()
            ]
            print(f"{name}: {'; '.join(means)}", flush=True)
            (asked.out / "word_sets.json").write_text(f"{json.dumps(results, indent=1)}\n")


if __name__ == "__main__":
    main()
