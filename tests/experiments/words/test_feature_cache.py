"""The cache of features saves time, and never returns the features of another sound or other settings."""

import io
import os
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.sound_files import make_voice, write_sound, write_word_folders

from cwrnn.cache_folder import find_cache_folder
from cwrnn.experiments.words import feature_cache, sound_files
from cwrnn.experiments.words.clips import Clip
from cwrnn.experiments.words.corpus import CorpusError, load_corpus
from cwrnn.experiments.words.feature_cache import load_features
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


def change_bits(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def write_huge_header(path):
    """Write a small cache whose header asks for 52 TiB."""
    file = io.BytesIO()
    np.save(file, np.zeros((1, 13), np.float32))
    array = file.getvalue().replace(b"(1, 13), }" + b" " * 12, b"(1099511627776, 13), }")
    assert b"(1099511627776, 13)" in array
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", array)


def compress_zeros(path):
    """Write a cache of 2 kB that would be a hundred times as large in memory."""
    digest = np.zeros(32, np.uint8)
    np.savez_compressed(path, features=np.zeros((20_000, 13), np.float32), lengths=np.ones(14, int), digest=digest)


def save_with_digest(path, features, lengths):
    digest = np.frombuffer(feature_cache._digest(path, features, lengths), np.uint8)
    np.savez(path, features=features, lengths=lengths, digest=digest)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b""), "not an archive of arrays"),
        (lambda path: path.write_bytes(b"no"), "not an archive of arrays"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "not an archive of arrays"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not an archive of arrays"),
        (lambda path: change_bits(path, 40), "not an archive of arrays"),
        (lambda path: change_bits(path, 3000), "Bad CRC-32"),
        (write_huge_header, "does not fit the size of the file"),
        (compress_zeros, "does not fit the size of the file"),
        (lambda path: np.savez(path, features=np.zeros((3, 13), np.float32)), "the array lengths is missing"),
        (
            lambda path: np.savez(
                path, features=np.zeros((14, 13), "<f4"), lengths=np.ones(14, int), digest=np.zeros(32, "u1")
            ),
            "its contents do not match its checksum",
        ),
        (lambda path: save_with_digest(path, np.zeros((14, 13)), np.ones(14, int)), "the array features must be <f4"),
        (lambda path: save_with_digest(path, np.zeros((14, 13), "<f4"), np.ones(14)), "the array lengths must be <i8"),
        (lambda path: save_with_digest(path, np.zeros((3, 13), "<f4"), np.array([3])), "those of other words"),
        (lambda path: save_with_digest(path, np.zeros((14, 12), "<f4"), np.ones(14, int)), "those of other words"),
        (lambda path: save_with_digest(path, np.zeros((77, 13), "<f4"), np.arange(14) - 1), "those of other words"),
        (lambda path: save_with_digest(path, np.zeros(14, "<f4"), np.ones(14, int)), "those of other words"),
        (lambda path: np.savez(path, features=np.array([object()])), "the array features has Python objects"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "it is not a regular file"),
        (lambda path: (path.unlink(), path.symlink_to(path)), "Too many levels of symbolic links"),
    ],
)
def test_damaged_cache_is_computed_anew_and_written_again(tmp_path, damage, reason):
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    whole = load_corpus(str(root), cache=cache)
    (path,) = cache.iterdir()
    data = path.read_bytes()
    damage(path)
    with pytest.warns(UserWarning, match=reason) as warned:
        again = load_corpus(str(root), cache=cache)
    assert again.digest == whole.digest
    assert [str(warning.message).startswith(f"{path}: this cache file is damaged") for warning in warned] == [True]
    assert list(cache.iterdir()) == [path]
    assert path.is_dir() or path.is_fifo() or path.is_symlink() or path.read_bytes() == data


def test_any_change_of_a_cache_file_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "key.npz"
    features = [np.arange(13 * length, dtype=np.float32).reshape(length, 13) for length in (2, 3)]
    feature_cache._write_cache_file(path, features)
    data = path.read_bytes()
    random = np.random.default_rng(0)
    noticed, places = 0, range(0, len(data), 3)
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = feature_cache._read_cache_file(path, 2, FeatureSettings())
        noticed += len(warned)
        assert (found is None) == (len(warned) == 1)
        if found is not None:
            # a time, a permission or another field that nobody reads
            np.testing.assert_array_equal(np.concatenate(found), np.concatenate(features))
    assert noticed > len(places) / 2
    path.write_bytes(data)
    path.rename(tmp_path / "other.npz")
    with pytest.warns(UserWarning, match="its contents do not match its checksum"):
        assert feature_cache._read_cache_file(tmp_path / "other.npz", 2, FeatureSettings()) is None


def test_user_cache_follows_xdg_cache_home(tmp_path, monkeypatch):
    root = write_word_folders(tmp_path / "mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_corpus(str(root), cache=False)
    assert not (tmp_path / "cache").exists()
    load_corpus(str(root))
    assert len(list((tmp_path / "cache" / "cwrnn" / "words").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert find_cache_folder("words") == tmp_path / ".cache" / "cwrnn" / "words"


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


@pytest.mark.parametrize("change", ["other bytes", "gone"])
def test_file_that_changes_while_it_is_read_is_one_problem(tmp_path, monkeypatch, change):
    """Otherwise the cache would keep the features of one sound under the hash of another."""
    root, cache = write_word_folders(tmp_path / "mine"), tmp_path / "cache"
    path, read, calls = root / "yes" / "s3.wav", feature_cache.read_sound_file, []

    def change_after_the_first_read(name):
        data = read(name)
        calls.append(name)
        if name == path and calls.count(path) == 1:
            path.unlink()
            if change == "other bytes":
                write_sound(path, make_voice(7))
        return data

    monkeypatch.setattr(feature_cache, "read_sound_file", change_after_the_first_read)
    with pytest.raises(CorpusError, match="yes/s3.wav: (the file has changed|cannot be read)") as refused:
        load_corpus(str(root), cache=cache)
    assert len(refused.value.problems) == 1
    assert not cache.exists()
