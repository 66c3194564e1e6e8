"""Bundles: a corpus in one file, as features. The bundle that comes with the package is synthetic speech.

    features    (sum of T, 13) float32, the utterances one after the other
    lengths     (n,) int32, the number of frames of each utterance
    about       bytes of a JSON object: name, source, synthetic, settings, clusters, utterances, and any other keys

A bundle is an .npz without pickles: reading it executes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...untrusted import parse_json, shorten
from ..array_files import read_arrays, write_arrays
from .corpus import Corpus, CorpusError, Utterance
from .features import FeatureSettings

FILE = files(__package__) / "synthetic.npz"
"""The bundle that comes with the package."""


def write_bundle(path: Path, corpus: Corpus, about: Mapping[str, Any]) -> None:
    """Write `corpus` to `path`. The same corpus gives the same bytes.

    Args:
        path: the file to write
        corpus: the words
        about: further facts, JSON-serialisable, with any keys: voices, tools, licences
    """
    text = json.dumps({**about, **describe_corpus(corpus)}, ensure_ascii=False, sort_keys=True, allow_nan=False)
    features, lengths = join_features(corpus)
    about_bytes = np.frombuffer(text.encode(), np.uint8)
    write_arrays(path, {"features": features, "lengths": lengths, "about": about_bytes}, compress=True)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Return everything about a corpus except its features, JSON-serialisable."""
    return {
        # the bytes of a corpus without draws are older than the draws
        **({"draw": corpus.draw} if corpus.draw else {}),
        "name": corpus.name,
        "source": corpus.source,
        "synthetic": corpus.synthetic,
        "settings": asdict(corpus.settings),
        # pairs, because the order of the words is that of the labels
        "clusters": list(corpus.clusters.items()),
        "utterances": [
            {"word": utterance.word, "speaker": utterance.speaker, "split": utterance.split, "source": utterance.source}
            for utterance in corpus.utterances
        ],
    }


def join_features(corpus: Corpus) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the features of all utterances one after the other, (sum of T, 13), and their lengths, (n,)."""
    features = np.concatenate([utterance.features for utterance in corpus.utterances]).astype("<f4")
    return features, np.array([len(utterance.features) for utterance in corpus.utterances], dtype="<i4")


def assemble_corpus(about: Mapping[str, Any], features: NDArray[Any], lengths: NDArray[Any]) -> Corpus:
    """Return the corpus of what `describe_corpus` and `join_features` returned.

    Raises a ValueError if the parts do not fit together, and a CorpusError if the corpus cannot be trained on.
    """
    _check_about(about)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not (lengths > 0).all():
        raise ValueError("its lengths are not numbers above 0")
    if features.ndim != 2 or len(features) != lengths.sum() or len(lengths) != len(about["utterances"]):
        raise ValueError("its lengths do not match")
    parts = np.split(features.astype(np.float32), np.cumsum(lengths)[:-1])
    return Corpus(
        name=about["name"],
        source=about["source"],
        utterances=tuple(
            Utterance(features=part, **utterance) for part, utterance in zip(parts, about["utterances"], strict=True)
        ),
        settings=FeatureSettings(**about["settings"]),
        synthetic=about["synthetic"],
        clusters=dict(about["clusters"]),
        draw=about.get("draw", 0),
    )


def _check_about(about: Any) -> None:
    """Raise a ValueError unless every part of `describe_corpus` is there and has its type."""
    types = {"name": str, "source": str, "synthetic": bool, "settings": dict, "clusters": list, "utterances": list}
    if not isinstance(about, Mapping):
        raise ValueError("it is not described by an object")
    for name, kind in types.items():
        if type(about.get(name)) is not kind:
            raise ValueError(f"its {name} must be of type {kind.__name__}")
    if type(about.get("draw", 0)) is not int:
        raise ValueError("its draw must be of type int")
    for pair in about["clusters"]:
        if not isinstance(pair, list | tuple) or [type(value) for value in pair] != [str, int]:
            raise ValueError("its clusters must be pairs of a word and a number")
    if len(dict(about["clusters"])) < len(about["clusters"]):
        raise ValueError("its clusters name a word twice")
    for utterance in about["utterances"]:
        if (
            not isinstance(utterance, dict)
            or set(utterance) != {"word", "speaker", "split", "source"}
            or not all(isinstance(text, str) for text in utterance.values())
        ):
            raise ValueError("an utterance must have a word, a speaker, a split and a source, which are texts")
    numbers = {setting.name: int if setting.type in (int, "int") else float for setting in fields(FeatureSettings)}
    for name, value in about["settings"].items():
        if name not in numbers or type(value) not in (numbers[name], int):
            raise ValueError(f"its settings cannot have {shorten(ascii(name))} = {shorten(repr(value))}")


def read_bundle(path: Path) -> Corpus:
    """Return the corpus in a file that `write_bundle` wrote, or raise a CorpusError."""
    return _read(path)[0]


def read_about(path: Path) -> dict[str, Any]:
    """Return the facts in a file that `write_bundle` wrote: its argument `about`, and `describe_corpus`."""
    return _read(path)[1]


def load_bundled_corpus() -> Corpus:
    """Return the corpus that comes with the package."""
    with as_file(FILE) as path:
        return read_bundle(path)


def _read(path: Path) -> tuple[Corpus, dict[str, Any]]:
    try:
        arrays = read_arrays(path, {"features": "<f4", "lengths": "<i4", "about": "|u1"})
        about = parse_json(arrays["about"].tobytes())
        corpus = assemble_corpus(about, arrays["features"], arrays["lengths"])
    except CorpusError:
        raise
    except OSError as error:
        raise CorpusError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except ValueError as error:
        raise CorpusError(str(path), [f"not a bundle of spoken words ({error})"]) from error
    return corpus, about
