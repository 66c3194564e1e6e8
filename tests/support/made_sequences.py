"""Sequences whose first step decides: a network must remember it to the end."""

import numpy as np


def make_classes(n, seed, shortest=100, longest=150):
    """Sequences of two channels and any lengths, and their classes "a" to "d", the signs of the first step."""
    random = np.random.default_rng(seed)
    classes = random.integers(4, size=n)
    sequences = []
    for number in classes:
        sequence = 0.3 * random.normal(size=(random.integers(shortest, longest + 1), 2))
        sequence[0] = [(1, 1), (1, -1), (-1, 1), (-1, -1)][number]
        sequences.append(sequence)
    return sequences, np.array(["a", "b", "c", "d"])[classes]


def make_targets(n, seed, steps=100):
    """Sequences (n, steps) of one channel, and their targets: the first step."""
    random = np.random.default_rng(seed)
    sequences = 0.1 * random.normal(size=(n, steps))
    sequences[:, 0] = random.uniform(-1, 1, size=n)
    return sequences, sequences[:, 0].copy()


def make_blobs(n=60, seed=0, steps=6):
    """A table (n, steps) and three classes that its level tells apart: it is learned in few epochs."""
    random = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    return random.normal(size=(n, steps)) + 4 * classes[:, None], classes
