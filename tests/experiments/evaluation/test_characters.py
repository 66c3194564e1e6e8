"""Texts: windows of characters whose targets are the next characters, parts that do not overlap, and refused files."""

import gzip
import hashlib
import os
import pickle
import random
import zlib
from importlib.resources import files

import numpy as np
import pytest
import torch

from cwrnn.experiments.errors import ArgumentError, DataError
from cwrnn.experiments.evaluation import characters
from cwrnn.experiments.evaluation.characters import LEAST_LENGTH, WARM, WINDOW, TextExamples, read_text


def make_text(length=60_000, alphabet="abcdé\n— 𝄞"):
    """Return a random text."""
    return "".join(random.Random(0).choices(alphabet, k=length))


def name_case(value):
    """Return the name of a value in the names of tests: texts are too long for a name."""
    return "data" if isinstance(value, bytes) else None


def decode(examples, classes):
    """Return the texts (B,) of classes (T, B)."""
    return ["".join(examples.vocabulary[one] for one in column) for column in classes.T.tolist()]


def test_targets_are_the_next_characters():
    examples = TextExamples("made", "", make_text())
    assert examples.vocabulary == "".join(sorted("abcdé\n— 𝄞"))
    assert (examples.inputs, examples.outputs, examples.length) == (9, 9, WINDOW)
    training = examples.text[:54_000]
    for batch in examples.make_epoch(16, np.random.default_rng(0)):
        assert batch.input.shape == (WINDOW, 16, 9)
        assert batch.input.dtype == torch.float32
        assert batch.target.dtype == torch.int64
        torch.testing.assert_close(batch.input.sum(2), torch.ones(WINDOW, 16))
        read, answers = decode(examples, batch.input.argmax(2)), decode(examples, batch.target)
        for one, answer in zip(read, answers, strict=True):
            assert one[1:] == answer[:-1]
            assert one + answer[-1] in training


def test_training_windows_are_everywhere_in_the_training_part_alone():
    examples = TextExamples("made", "", make_text(LEAST_LENGTH))
    last = LEAST_LENGTH * 9 // 10

    class Generator:
        """Draws the least and the largest numbers in turn."""

        def integers(self, high, size):
            return np.arange(size) % 2 * (high - 1)

    batch = next(examples.make_epoch(2, Generator()))
    first, second = decode(examples, batch.target)
    assert first == examples.text[1 : WINDOW + 1]
    assert second == examples.text[last - WINDOW : last]


def test_an_epoch_covers_the_training_part():
    examples = TextExamples("made", "", make_text())
    for batch in (1, 7, 64, 1000):
        count = examples.count_updates(batch)
        assert (count - 1) * batch * WINDOW < 54_000 <= count * batch * WINDOW
    assert len(list(examples.make_epoch(64, np.random.default_rng(0)))) == examples.count_updates(64) == 4
    first, again, other = (next(examples.make_epoch(8, np.random.default_rng(seed))) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first.target, other.target)


@pytest.mark.parametrize("length", [LEAST_LENGTH, LEAST_LENGTH + 1, 60_000, 60_013])
def test_parts_answer_every_character_at_most_once(length):
    text = make_text(length)
    examples = TextExamples("made", "", text)
    bounds = {"validation": (length * 90 // 100, length * 95 // 100), "test": (length * 95 // 100, length)}
    for part, (start, end) in bounds.items():
        answered = 0
        place = start
        for batch in examples.make_part(part, 4):
            assert batch.input.shape[0] == 2 * WARM
            assert batch.target.shape == (WARM, batch.input.shape[1])
            read, answers = decode(examples, batch.input.argmax(2)), decode(examples, batch.target)
            for one, answer in zip(read, answers, strict=True):
                # a random text has no part twice, so its windows tell where they are
                assert one == text[place : place + 2 * WARM]
                assert answer == text[place + WARM + 1 : place + 2 * WARM + 1]
                assert place + 2 * WARM + 1 <= end
                place += WARM
                answered += 1
        assert answered == examples.count_windows(part) >= 10
        # no further window would fit
        assert place + 2 * WARM + 1 > end


def test_batches_do_not_change_the_part():
    examples = TextExamples("made", "", make_text())
    whole = next(examples.make_part("validation", 1000))
    parts = list(examples.make_part("validation", 3))
    torch.testing.assert_close(torch.cat([part.input for part in parts], 1), whole.input)
    torch.testing.assert_close(torch.cat([part.target for part in parts], 1), whole.target)
    with pytest.raises(ArgumentError, match="part: expected one of validation, test, got 'training'"):
        examples.make_part("training", 1)


def test_the_bundled_text_is_the_novel_alone():
    examples = read_text("bundle")
    notice = (files(characters.__package__) / "texts" / "NOTICE").read_text()
    assert hashlib.sha256(examples.text.encode()).hexdigest() in notice
    assert "public domain" in notice
    assert examples.text.startswith("CHAPTER 1. Loomings.\n\nCall me Ishmael.")
    assert examples.text.endswith("only found another orphan.\n")
    assert "gutenberg" not in examples.text.lower()
    assert (len(examples.text), examples.outputs, examples.name) == (1_191_295, 81, "Moby-Dick")
    assert next(examples.make_part("test", 2)).input.shape == (512, 2, 81)


def test_restored_examples_are_the_same(tmp_path):
    path = tmp_path / "my text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + make_text().encode())
    examples = read_text(path)
    assert (examples.name, examples.source, examples.text) == ("my text", str(path), make_text())
    restored = TextExamples.restore("a", "b", examples.describe(), examples.pack_numbers())
    next(examples.make_part("test", 1))
    sent = pickle.dumps(examples)
    assert len(sent) < len(examples.text.encode()) + 1000
    for other in (restored, pickle.loads(sent)):
        assert (other.digest, other.text) == (examples.digest, examples.text)
        torch.testing.assert_close(list(other.make_part("test", 9)), list(examples.make_part("test", 9)))
    assert (restored.name, restored.source) == ("a", "b")
    assert TextExamples("", "", make_text() + "a").digest != examples.digest
    assert len(examples.pack_numbers()) < len(examples.text)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "expected a text of 2 to 512 different characters, got 0"),
        (b"a" * 100_000, "expected a text of 2 to 512 different characters, got 1"),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 513))).encode() * 200, "different characters, got 513"),
        (make_text(LEAST_LENGTH - 1).encode(), "expected at least 56340 characters, got 56339"),
        (make_text().encode("latin-1", "replace"), "the text is not UTF-8: byte"),
        (make_text().encode("utf-16"), "the text is not UTF-8: byte 0"),
        (b"ab" * 50_000 + b"\xed\xa0\x80", "the text is not UTF-8: byte 100000"),
    ],
    ids=name_case,
)
def test_texts_that_cannot_be_learned_are_refused(tmp_path, data, problem):
    path = tmp_path / "text"
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"text: .*{problem}"):
        read_text(path)


def test_files_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="missing: there is no such file; 'bundle' is the text"):
        read_text(tmp_path / "missing")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="cannot be read: it is not a regular file"):
        read_text(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="expected a path, got an empty one"):
        read_text("")
    monkeypatch.setattr(characters, "LARGEST_TEXT", 99)
    (tmp_path / "large").write_bytes(b"ab" * 50)
    with pytest.raises(DataError, match="large: cannot be read: it has 100 bytes, but may have 99 at most"):
        read_text(tmp_path / "large")


@pytest.mark.parametrize(
    ("about", "numbers", "problem"),
    [
        ({"bytes": 60_000}, zlib.compress(b"ab" * 30_001), "expected a text of 60000 bytes, got more"),
        ({"bytes": 60_000}, zlib.compress(b"ab" * 29_999), "expected a text of 60000 bytes, got 59998"),
        ({"bytes": 60_000}, zlib.compress(b"ab" * 30_000)[:-1], "the compressed data are cut short"),
        ({"bytes": 60_000}, b"", "the compressed data are cut short"),
        ({"bytes": 60_000}, b"nonsense", "the compressed data are damaged"),
        ({"bytes": 60_000}, gzip.compress(b"a" * 60_000), "different characters, got 1"),
        ({"bytes": 60_000}, zlib.compress(b"a\xff" * 30_000), "invalid start byte"),
        ({"bytes": 0}, zlib.compress(b""), "expected a text of 1 to"),
        ({"bytes": 2**40}, zlib.compress(b"ab" * 30_000), "expected a text of 1 to"),
        ({"bytes": 60_000.0}, zlib.compress(b"ab" * 30_000), "expected a text of 1 to"),
        ({"bytes": True}, zlib.compress(b"a"), "expected a text of 1 to"),
        ([], zlib.compress(b"ab" * 30_000), "expected an object"),
    ],
    ids=name_case,
)
def test_nonsense_is_not_restored(about, numbers, problem):
    with pytest.raises(ValueError, match=problem):
        TextExamples.restore("a", "b", about, numbers)


def test_a_text_without_its_size_is_not_restored():
    with pytest.raises(KeyError):
        TextExamples.restore("a", "b", {}, zlib.compress(b"ab" * 30_000))
