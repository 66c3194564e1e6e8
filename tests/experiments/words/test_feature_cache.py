"""The cache of features saves time, and never returns the features of another sound or other settings."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.sound_files import make_voice, write_sound, write_word_folders

from cwrnn.experiments.words import sound_files
from cwrnn.experiments.words.clips import Clip
from cwrnn.experiments.words.corpus import CorpusError, load_corpus
from cwrnn.experiments.words.feature_cache import find_user_cache, load_features
from cwrnn.experiments.words.features import FeatureSettings, mfcc


def refuse_to_compute(*_, **__):
    raise AssertionError("computed")


def test_features_are_computed_once(tmp_path, monkeypatch):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    calls = []
    whole = load_corpus(str(root), cache=cache, progress=lambda progress: calls.append((progress.done, progress.total)))
    assert calls == [(i, 14) for i in range(1, 15)]
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(sound_files, "mfcc", refuse_to_compute)
    calls.clear()
    assert (
        load_corpus(
            str(root), cache=cache, progress=lambda progress: calls.append((progress.done, progress.total))
        ).digest
        == whole.digest
    )
    assert calls == [(14, 14)]
    # other bytes under the same name, size and time are computed again
    path = root / "yes" / "s3.wav"
    data, times = bytearray(path.read_bytes()), path.stat()
    data[3001] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(AssertionError, match="computed"):
        load_corpus(str(root), cache=cache)


@pytest.mark.parametrize("settings", [{"filters": 24}, {"step": 5.0}])
def test_other_settings_are_not_found_in_the_cache(tmp_path, settings):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    clip = Clip("yes", "s0", "train", root / "yes" / "s0.wav", "a")
    for chosen in (FeatureSettings(), replace(FeatureSettings(), **settings)) * 2:
        (features,), _ = load_features([clip], chosen, cache=cache)
        np.testing.assert_array_equal(features, mfcc(soundfile.read(clip.path)[0], chosen))


@pytest.mark.parametrize("place", [{"start": 100}, {"end": 3000}])
def test_another_place_in_the_file_is_not_found_in_the_cache(tmp_path, place):
    clip = Clip("yes", "s0", "train", write_sound(tmp_path / "a.wav", make_voice(1)), "a")
    for each in (clip, replace(clip, **place)) * 2:
        (features,), _ = load_features([each], FeatureSettings(), cache=tmp_path / "cache")
        np.testing.assert_array_equal(features, mfcc(soundfile.read(clip.path)[0][each.start : each.end]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no"),
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: np.savez(path, features=np.zeros((3, 13), np.float32), lengths=np.array([3])),
        lambda path: np.savez(path, features=np.zeros((14, 13)), lengths=np.ones(14, int)),
        lambda path: np.savez(path, features=np.zeros((14, 12), np.float32), lengths=np.ones(14, int)),
        lambda path: np.savez(path, features=np.zeros((77, 13), np.float32), lengths=np.arange(14) - 1),
        lambda path: np.savez(path, features=np.array([object()])),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_damaged_cache_is_ignored_and_written_again(tmp_path, damage):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    whole = load_corpus(str(root), cache=cache)
    (path,) = cache.iterdir()
    data = path.read_bytes()
    damage(path)
    assert load_corpus(str(root), cache=cache).digest == whole.digest
    assert list(cache.iterdir()) == [path]
    assert path.is_dir() or path.read_bytes() == data


def test_user_cache_follows_xdg_cache_home(tmp_path, monkeypatch):
    root = write_word_folders(tmp_path / "mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_corpus(str(root), cache=False)
    assert not (tmp_path / "cache").exists()
    load_corpus(str(root))
    assert len(list((tmp_path / "cache" / "cwrnn" / "words").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert find_user_cache() == tmp_path / ".cache" / "cwrnn" / "words"


def test_cache_that_cannot_be_written_is_no_error(tmp_path):
    root = write_word_folders(tmp_path / "mine")
    (tmp_path / "cache").write_text("a file")
    assert len(load_corpus(str(root), cache=tmp_path / "cache").utterances) == 14


def test_what_a_killed_process_left_in_the_cache_is_removed(tmp_path):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    cache.mkdir()
    (cache / f".cwrnn-{'0' * 16}.part").write_bytes(b"half of a cache file")
    load_corpus(str(root), cache=cache)
    assert [path.suffix for path in cache.iterdir()] == [".npz"]


def test_problems_are_not_cached(tmp_path):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    write_sound(root / "yes" / "s3.wav", np.zeros(4000))
    for _ in range(2):
        with pytest.raises(CorpusError, match="silent"):
            load_corpus(str(root), cache=cache)
