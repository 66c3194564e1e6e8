"""Small corpora whose features are made up."""

import numpy as np

from cwrnn.experiments.words.corpus import Corpus, Utterance
from cwrnn.experiments.words.features import FeatureSettings


def make_corpus(words=4, speakers=3, *, test=1, clusters=2, seed=0, name="murmurs", synthetic=True) -> Corpus:
    """Return a corpus in which each word is a sum of its own waves, with noise, and of random length."""
    generator = np.random.default_rng(seed)
    settings = FeatureSettings()
    utterances = []
    for word in range(words):
        tune = generator.normal(size=(2, settings.channels))
        for speaker in range(speakers):
            T = int(generator.integers(5, 12))
            time = np.linspace(0, 1, T)[:, None]
            features = tune[0] * np.sin(3 * time) + tune[1] * time + 0.1 * generator.normal(size=(T, settings.channels))
            split = "test" if speaker < test else "train"
            utterances.append(
                Utterance(f"word{word}", f"s{word}{speaker}", split, features.astype(np.float32), "made for a test")
            )
    numbers = {f"word{word}": 1 + word * clusters // words for word in range(words)}
    return Corpus(name, "synthetic murmurs of a test", tuple(utterances), settings, synthetic, numbers)


def make_pool(words=("a", "b", "c"), speakers=9, name="pool", split=lambda i: "train" if i % 3 else "test") -> Corpus:
    """Return a corpus to draw speakers from: each of `speakers` speakers says each word once."""
    random = np.random.default_rng(1)
    return Corpus(
        name=name,
        source="made up",
        utterances=tuple(
            Utterance(
                word, f"s{i}", split(i), random.normal(3 * number, 2, (4 + i, 13)).astype(np.float32), f"{word}{i}"
            )
            for number, word in enumerate(words)
            for i in range(speakers)
        ),
        settings=FeatureSettings(),
        synthetic=False,
        clusters=dict.fromkeys(words, 1),
    )


def make_small_corpus(words=("a", "b", "c"), clusters=None, synthetic=False) -> Corpus:
    """Return a corpus of random features: two utterances of each word for training, one for testing."""
    random = np.random.default_rng(0)
    return Corpus(
        name="small",
        source="made up",
        utterances=tuple(
            Utterance(word, f"s{i}", split, random.normal(3, 2, (5 + i, 13)).astype(np.float32), f"{word}{i}")
            for word in words
            for i, split in enumerate(("train", "test", "train"))
        ),
        settings=FeatureSettings(),
        synthetic=synthetic,
        clusters=clusters or dict.fromkeys(words, 1),
    )
