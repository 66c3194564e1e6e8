"""Training networks to tell words apart: epochs, noise, early stopping, and the store."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from support import small_sweeps
from support.made_corpora import make_corpus

from cwrnn.experiments import paper
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.networks import build
from cwrnn.experiments.networks.replicas import Replicas
from cwrnn.experiments.report.statistics import summarise
from cwrnn.experiments.sweep.batches import make_batches
from cwrnn.experiments.sweep.run import Run
from cwrnn.experiments.sweep.store import Store, StoreError
from cwrnn.experiments.words import training
from cwrnn.experiments.words.task import WORDS
from cwrnn.experiments.words.training import WordSettings, train_many
from cwrnn.kernels import replicas
from cwrnn.kernels.cpu import loader

METHODS = {"srn": 5, "lstm": 4, "cw": 6, "gru": 4, "cw-lstm": 5, "cw-gru": 5}


def settings(**options):
    return WordSettings(**{"learning_rate": 0.01, "epochs": 3, "modules": 3, "inputs": 13, "outputs": 4, **options})


def sets(**options):
    corpus = make_corpus(**options)
    return corpus.normalised("train"), corpus.normalised("test")


def same(one, other):
    assert (one.status, one.error, one.best_error, one.best_epoch, one.epochs) == (
        other.status, other.error, other.best_error, other.best_epoch, other.epochs,
    )  # fmt: skip
    np.testing.assert_array_equal(one.curve, other.curve)
    np.testing.assert_array_equal(one.output, other.output)
    assert one.weights.keys() == other.weights.keys()
    for name, value in one.weights.items():
        np.testing.assert_array_equal(value, other.weights[name])


def test_default_settings_are_the_papers():
    """Section 4.2 of the paper gives these settings."""
    (run,) = WORDS.plan([make_corpus()], methods=["cw"], sizes=[10000], runs=1)
    assert run.settings == WordSettings(
        3e-4, momentum=0.9, modules=7, noise=0.6, patience=5, forget_bias=5.0, deviation=0.1, inputs=13, outputs=4
    )
    assert dict.fromkeys(paper.METHODS, 3e-4) == paper.WORDS_LEARNING_RATES


@pytest.mark.parametrize("method", METHODS)
def test_one_epoch_equals_that_of_torchs_optimiser(method):
    """torch's own optimiser makes the same updates, with the order and the noise of the seed."""
    train, test = sets()
    own = settings(epochs=1)
    (result,) = train_many(method, METHODS[method], train, test, [7], own)

    network = training.build_untrained(method, METHODS[method], own, 7)
    optimizer = torch.optim.SGD(network.parameters(), lr=own.learning_rate, momentum=own.momentum, nesterov=True)
    generator = np.random.default_rng([7, 2])
    order = generator.permutation(len(train))
    noise = generator.standard_normal((sum(len(x) for x, _ in train), 13), dtype=np.float32)

    def judge(sequences):
        with torch.no_grad():
            found = [network(torch.from_numpy(x)[:, None])[-1, 0] for x, _ in sequences]
        loss = -np.mean([float(each[label]) for each, (_, label) in zip(found, sequences, strict=True)])
        wrong = np.mean([int(each.argmax()) != label for each, (_, label) in zip(found, sequences, strict=True)])
        return loss, wrong, torch.stack(found)

    before = judge(train)
    for place in order:
        features, label = train[place]
        noisy = features + np.float32(own.noise) * noise[: len(features)]
        noise = noise[len(features) :]
        loss = -network(torch.from_numpy(noisy)[:, None])[-1, 0, label]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = judge(train)

    assert result.epochs == 1
    np.testing.assert_allclose(result.curve[:, 1], [before[0], after[0]], rtol=1e-4)
    np.testing.assert_allclose(result.curve[:, 2], [before[1], after[1]], atol=1e-6)
    assert result.best_epoch == (after[0] < before[0])
    assert after[0] < before[0]
    for name, value in network.named_parameters():
        np.testing.assert_allclose(result.weights[name], value.detach(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(result.output, judge(test)[2], rtol=1e-3, atol=1e-4)
    assert result.error == judge(test)[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_gives_the_same_result_alone(method):
    """The result depends neither on the other runs of the batch nor on the number of threads."""
    train, test = sets()
    own = settings(epochs=12, patience=1, learning_rate=0.1, noise=2.0)
    together = train_many(method, METHODS[method], train, test, [0, 1, 2, 3, 4], own)
    assert len({result.epochs for result in together}) > 1
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [train_many(method, METHODS[method], train, test, [seed], own)[0] for seed in range(5)]
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(together, alone, strict=True):
        same(one, other)


def test_training_learns_and_stops_early():
    train, test = sets(words=3, speakers=6, test=2)
    results = train_many(
        "cw", 12, train, test, range(4), settings(epochs=400, outputs=3, learning_rate=0.05, noise=2.0)
    )
    for result in results:
        assert result.status == "finished"
        assert result.epochs == result.best_epoch + 5 < 400
        losses = result.curve[:, 1]
        assert losses.argmin() == result.best_epoch
        assert losses[result.best_epoch] < 0.5 * losses[0]
        assert result.error == pytest.approx(result.curve[result.best_epoch, 3])
        assert result.output.shape == (6, 3)
        np.testing.assert_allclose(np.exp(result.output).sum(1), 1, rtol=1e-5)
        wrong = np.mean(result.output.argmax(1) != [label for _, label in test])
        assert result.error == wrong
    assert np.mean([result.error for result in results]) < 0.4


def test_every_seed_has_noise_of_its_own():
    """Two seeds differ in noise and order, not only in initial weights."""
    train, test = sets()
    one, other = (train_many("srn", 5, train, test, [0], settings(noise=noise))[0] for noise in (0.0, 0.6))
    assert not np.array_equal(one.curve, other.curve)
    with_same_start = [
        training._Epoch(training.Padded(train), [np.random.default_rng([seed, 2])], 0.6) for seed in (0, 1)
    ]
    assert not np.array_equal(with_same_start[0].orders, with_same_start[1].orders)


def test_an_epoch_has_every_sequence_once():
    train, _ = sets(words=5, speakers=4)
    padded = training.Padded(train)
    epoch = training._Epoch(padded, [np.random.default_rng(seed) for seed in range(3)], 0.0)
    seen = [set(), set(), set()]
    for number in range(len(train)):
        input, lengths, labels = epoch.sequence(number)
        for network in range(3):
            place = int(epoch.orders[network, number])
            features, label = train[place]
            seen[network].add(place)
            assert (int(lengths[network]), int(labels[network])) == (len(features), label)
            np.testing.assert_array_equal(input[network, : len(features)], features)
    assert seen == [set(range(len(train)))] * 3


def test_a_diverged_run_has_no_error():
    train, test = sets()
    (result,) = train_many("srn", 5, train, test, [0], settings(learning_rate=1e38, epochs=9))
    assert result.status == "diverged"
    assert math.isnan(result.error)
    assert np.isfinite(result.curve).all()
    assert result.output.shape == (len(test), 4)
    assert all(np.isfinite(value).all() for value in result.weights.values())


@pytest.mark.parametrize("method", METHODS)
def test_final_states_are_equal_with_and_without_the_kernel(method, monkeypatch):
    own = settings()
    networks = [training.build_untrained(method, METHODS[method], own, seed) for seed in range(3)]
    input = torch.randn(3, 9, 4, 13, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([[9, 1, 5, 8], [2, 9, 9, 3], [4, 4, 6, 7]])
    found = Replicas(networks).decide(input, lengths)
    expected = torch.stack([
        torch.stack([network(input[s, : lengths[s, b], b : b + 1])[-1, 0] for b in range(4)])
        for s, network in enumerate(networks)
    ])  # fmt: skip
    torch.testing.assert_close(found, expected)
    monkeypatch.setattr(loader, "refuse", lambda device, dtype: "not today")
    torch.testing.assert_close(Replicas(networks).decide(input, lengths), expected)


def test_gradients_through_final_states_equal_finite_differences():
    """The kernel's gradients for many networks agree with differences in float64."""
    generator = torch.Generator().manual_seed(1)
    schedule = build.build_network("cw", 5, 2, 3, modules=3).layer.schedule
    shapes = (2, 7, 3, 2), (2, 5, 2), (2, 5, 5), (2, 5)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    lengths = torch.tensor([[7, 2, 5], [1, 7, 6]])
    if loader.refuse(torch.device("cpu"), torch.float64) is not None:
        pytest.skip("the kernel is not built")
    assert torch.autograd.gradcheck(lambda *tensors: replicas.run_to_end(*tensors, schedule, lengths), values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"noise": -1.0}, "noise must be"),
        ({"noise": math.nan}, "noise must be"),
        ({"inputs": 12}, r"\(T, 12\)"),
        ({"outputs": 3}, "labels must lie between 0 and 2, got 3"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        train_many("srn", 5, *sets(), [0], settings(**changes))


def test_sequences_of_the_wrong_shape_are_refused():
    train, test = sets()
    nan = train[0][0] * np.float32(np.nan)
    for bad, message in (([], "there are no"), ([(nan, 0)], "must be finite"), ([(train[0][0][:0], 0)], "at least 1")):
        with pytest.raises(ValueError, match=f"{message}"):
            train_many("srn", 5, train, bad, [0], settings())
    assert train_many("srn", 5, train, test, [], settings()) == []


def test_a_progress_callback_can_stop_the_training():
    epochs = []
    train_many("srn", 5, *sets(), [0], settings(), progress=epochs.append)
    assert epochs[-1] == 3

    def stop(epochs):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        train_many("srn", 5, *sets(), [0], settings(), progress=stop)


def plan(corpus, **options):
    options = {"methods": ["srn", "cw"], "sizes": [500], "runs": 3, "epochs": 2, **options}
    return WORDS.plan([corpus], **options)


def test_words_are_trained_and_stored_by_a_sweep(tmp_path):
    corpus = make_corpus(words=3, speakers=4)
    runs = plan(corpus)
    small_sweeps.sweep(tmp_path, [corpus], runs)
    with Store.read(tmp_path) as store:
        records = store.records("words")
        (back,) = store.corpora().values()
        assert store.datasets() == {}
    assert (back.name, back.digest, back.words, back.synthetic) == (
        corpus.name, corpus.digest, corpus.words, corpus.synthetic,
    )  # fmt: skip
    assert {record.key for record in records} == {run.key for run in runs}
    for record in records:
        run = record.run
        assert isinstance(run.settings, WordSettings)
        (alone,) = train_many(
            run.method, run.hidden, corpus.normalised("train"), corpus.normalised("test"), [run.seed], run.settings
        )
        assert record.error == alone.error
        np.testing.assert_array_equal(record.output, alone.output)
    rows = summarise(records)
    assert [(row.method, row.size, row.runs) for row in rows] == [("srn", 500, 3), ("cw", 500, 3)]
    assert rows[0].mean == pytest.approx(np.mean([r.error for r in records if r.run.method == "srn"]))


def test_a_batch_has_one_corpus():
    one, other = make_corpus(name="one"), make_corpus(name="other", seed=1)
    batches = make_batches([*plan(one), *plan(other)], [one, other])
    assert all(len({run.data for run in batch.runs}) == 1 for batch in batches)
    assert len(batches) == 4


def test_one_store_may_have_both_tasks(tmp_path):
    corpus, wave = make_corpus(), small_sweeps.wave()
    small_sweeps.sweep(
        tmp_path, [corpus, wave], [*plan(corpus, runs=1), *small_sweeps.plan([wave], sizes=[100], runs=1)]
    )
    with Store.read(tmp_path) as store:
        assert [len(store.records(task)) for task in ("generation", "words")] == [2, 2]
        assert (list(store.datasets()), list(store.corpora())) == (["wave"], ["murmurs"])


def test_another_corpus_of_the_same_name_is_refused(tmp_path):
    with Store.open(tmp_path, create=True) as store:
        store.add_dataset(make_corpus())
        store.add_dataset(make_corpus())
        with pytest.raises(StoreError, match="has other numbers than synthetic murmurs of a test now"):
            store.add_dataset(make_corpus(seed=1))
        assert store.corpora()["murmurs"].digest == make_corpus().digest


def test_source_and_clusters_of_a_stored_corpus_are_updated(tmp_path):
    """Source and clusters of a stored corpus may be corrected."""
    before, after = make_corpus(clusters=1), dataclasses.replace(make_corpus(clusters=2), source="corrected")
    assert before.digest == after.digest
    with Store.open(tmp_path, create=True) as store:
        store.add_dataset(before)
        store.add_dataset(after)
        (found,) = store.corpora().values()
        assert (found.clusters, found.source, found.digest) == (after.clusters, "corrected", after.digest)


def test_parameter_counts_are_those_of_table_2():
    counts = {
        method: [build.parameter_count(method, hidden, 13, 25, modules=7, peepholes=False) for hidden in sizes.values()]
        for method, sizes in paper.WORDS_HIDDEN_UNITS.items()
    }
    assert counts == {
        "srn": [515, 1051, 2507, 5047, 10357],
        "lstm": [530, 929, 2558, 4835, 10070],
        "cw": [480, 980, 2507, 4982, 9956],
    }
    for method, sizes in paper.WORDS_HIDDEN_UNITS.items():
        for size, hidden in sizes.items():
            assert build.hidden_for(method, size, input_size=13, output_size=25, modules=7) == hidden


def test_every_setting_changes_the_key():
    corpus = make_corpus()
    (run,) = plan(corpus, methods=["cw"], runs=1)
    changed = [
        dataclasses.replace(run, settings=dataclasses.replace(run.settings, **change))
        for change in ({"noise": 0.5}, {"patience": 6}, {"outputs": 5}, {"momentum": 0.95})
    ]
    others = [*changed, dataclasses.replace(run, digest=make_corpus(seed=1).digest)]
    assert len({each.key for each in (run, *others)}) == 6
    assert isinstance(run, Run)


@pytest.mark.parametrize(
    ("source", "words", "argument"),
    [
        ("bundle", ["making"], "words"),
        ("bundle", ["making", "zebra"], "words"),
        ("folder:/nowhere", ["making", "making"], "words"),
        ("timit:/nowhere", ["Yes", "yes"], "words"),
        ("folder:/nowhere", ["Yes", "yes"], "data"),
    ],
)
def test_the_argument_at_fault_is_named(source, words, argument):
    with pytest.raises(ArgumentError) as refused:
        WORDS.load_data(source, words=words)
    assert refused.value.argument == argument
