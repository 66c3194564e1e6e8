"""Bundles: a corpus in one file, as features. The bundle that comes with the package is synthetic speech.

    features    (sum of T, 13) float32, the utterances one after the other
    lengths     (n,) the number of frames of each utterance
    about       bytes of a JSON object: name, source, synthetic, settings, clusters, utterances, and any other keys

A bundle is an .npz without pickles: reading it executes nothing.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...writing import write_files
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
    file = io.BytesIO()
    np.savez_compressed(file, features=features, lengths=lengths, about=np.frombuffer(text.encode(), np.uint8))
    write_files({path: file.getvalue()})


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Return everything about a corpus except its features, JSON-serialisable."""
    return {
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
    """Return the corpus of what `describe_corpus` and `join_features` returned."""
    if len(features) != lengths.sum() or len(lengths) != len(about["utterances"]):
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
    )


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
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            features, lengths, text = (arrays[name] for name in ("features", "lengths", "about"))
        about = json.loads(bytes(text))
        corpus = assemble_corpus(about, features, lengths)
    except CorpusError:
        raise
    except OSError as error:
        raise CorpusError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise CorpusError(str(path), [f"not a bundle of spoken words ({error})"]) from error
    return corpus, about
