"""The figures of spoken words show the right numbers, and can be drawn for every store."""

import numpy as np
import pytest
from support.made_records import make_corpus, make_words_record, make_words_run, train_words_runs

from cwrnn import Schedule
from cwrnn.experiments.report import drawing, statistics
from cwrnn.experiments.report.drawing import PERCENT
from cwrnn.experiments.report.figures import box_plot, search_curve
from cwrnn.experiments.words import figures, training

METHODS = ("srn", "lstm", "cw")


def lines(figure, gid):
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.fixture(scope="module")
def trained_record():
    """Returns the record of a network that learnt for a few epochs, so that even its slowest module has moved."""
    [record] = train_words_runs(make_words_run(hidden=7, learning_rate=0.01, epochs=3, modules=4), corpus=make_corpus())
    return record


def test_answers_are_counted_by_word_and_by_cluster():
    corpus = make_corpus()
    record = make_words_record(0.4)
    counts = figures.count_answers(record, corpus)
    # the first two of five are taken for the next word
    expected = np.diag([0, 0, 1, 1, 1])
    expected[0, 1] = expected[1, 2] = 1
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(figures.group_by_cluster(counts, corpus), [[1, 1], [0, 3]])


def test_counted_answers_agree_with_the_error(trained_record):
    counts = figures.count_answers(trained_record, make_corpus())
    assert 1 - np.trace(counts) / counts.sum() == pytest.approx(trained_record.error)


def test_clusters_are_named_by_their_endings():
    assert figures.name_clusters(make_corpus()) == {1: "…king", 2: "…way"}


def test_the_drawn_word_is_the_longest_that_is_recognised():
    corpus = make_corpus()
    lengths = [len(each.features) for each in corpus.test]
    assert lengths.index(max(lengths)) == 4
    assert figures.choose_utterance(make_words_record(0.4), corpus) == 4
    # if no word is recognised, the longest of all is drawn
    assert figures.choose_utterance(make_words_record(1.0), corpus) == 4
    record = make_words_record(0.0)
    record.output[4] = record.output[0]
    assert figures.choose_utterance(record, corpus) == 3


def test_confusions_are_drawn_where_the_numbers_are():
    corpus = make_corpus()
    records = [
        make_words_record(error, method=m, seed=seed) for m in METHODS for seed, error in enumerate([0.6, 0.4, 1.0])
    ]
    figure = figures.confusions(records, corpus)
    for place, method in enumerate(METHODS):
        above, below = figure.axes[place], figure.axes[3 + place]
        counts = figures.count_answers(make_words_record(0.4, method=method), corpus)
        drawn = {patch.get_gid() for patch in above.patches}
        assert drawn == {f"words-{method}-{row}-{column}" for row, column in np.argwhere(counts)}
        squares = {patch.get_gid(): patch.get_xy() for patch in above.patches}
        assert squares[f"words-{method}-0-1"] == (0.5, -0.5)
        grouped = figures.group_by_cluster(counts, corpus)
        assert sorted(text.get_text() for text in below.texts) == sorted(map(str, grouped[grouped > 0]))
        assert [tick.get_text() for tick in above.get_xticklabels()] == list(corpus.words)
        assert below.get_title("left") == "1 of the 2 errors within a cluster"
        assert above.texts[0].get_text() == "2 of 5 wrong (40 %)"
    assert figure.axes[0].get_title("left") == "SRN, 500 parameters"


def test_confusions_leave_out_a_method_that_never_finished():
    records = [make_words_record(0.4, method="srn", status="diverged"), make_words_record(0.4, method="lstm")]
    figure = figures.confusions(records, make_corpus())
    assert [axes.get_title("left") for axes in figure.axes[:1]] == ["LSTM, 500 parameters"]
    assert len(figure.axes) == 2


def test_a_run_that_ended_continues_with_the_network_it_kept():
    long, short = make_words_record(0.2, epochs_made=6), make_words_record(0.6, seed=1, epochs_made=2)
    epochs, quartiles = statistics.quartile_curve([long, short], 1, kept=True)
    assert epochs.tolist() == [0, 1, 2, 3, 4, 5, 6]
    # the short one kept the network of its first epoch, with a cross entropy of 2
    kept = short.curve[short.best_epoch, 1]
    assert (short.best_epoch, kept) == (1, 2.0)
    np.testing.assert_allclose(quartiles[1, 3:], (long.curve[3:, 1] + kept) / 2)
    np.testing.assert_allclose(quartiles[1, 2], (long.curve[2, 1] + short.curve[2, 1]) / 2)
    figure = figures.learning_curves([long, short, make_words_record(0.1, seed=2, status="diverged")])
    [line] = lines(figure, "train-cw-500")
    np.testing.assert_allclose(line.get_ydata(), quartiles[1])
    [line] = lines(figure, "test-cw-500")
    np.testing.assert_allclose(line.get_ydata(), 40, rtol=1e-6)
    assert "CW-RNN: 1 of 3 diverged" in texts(figure)


def test_hearing_shows_states_and_probabilities(trained_record):
    corpus = make_corpus()
    features, label = corpus.normalised("test")[3]
    states, logarithms = training.follow("cw", 7, trained_record.weights, features, trained_record.run.settings)
    assert states.shape == (len(features), 7)
    # the last step equals the output in the record
    np.testing.assert_allclose(logarithms[-1], trained_record.output[3], rtol=1e-4, atol=1e-5)
    figure = figures.hearing(trained_record, corpus, 3)
    schedule = Schedule.parse(trained_record.schedule)
    images = {image.get_gid(): np.asarray(image.get_array()) for axes in figure.axes for image in axes.images}
    assert images["spectrogram"].shape == (26, len(features))
    for module in range(4):
        drawn = images[f"module-{module}"]
        np.testing.assert_array_equal(drawn, states[:, schedule.slices[module]].T)
        moved = np.flatnonzero(np.diff(drawn, axis=1).any(axis=0)) + 1
        assert set(moved % schedule.periods[module]) == {0}
        [ticks] = [c for axes in figure.axes for c in axes.collections if c.get_gid() == f"ticks-{module}"]
        assert [segment[0][0] for segment in ticks.get_segments()] == list(
            range(0, len(features), schedule.periods[module])
        )
    assert [axes.get_ylabel() for axes in figure.axes[1:5]] == ["period 8", "period 4", "period 2", "period 1"]
    [line] = lines(figure, f"probability-{label}")
    np.testing.assert_array_equal(line.get_ydata(), np.exp(logarithms[:, label]))
    assert line.get_color() == drawing.COLOURS["cw"]


@pytest.mark.parametrize(("method", "status"), [("srn", "finished"), ("cw", "failed")])
def test_hearing_refuses_other_methods_and_failed_runs(method, status):
    with pytest.raises(
        ValueError, match=f"record must have a trained network with clocks, got a {status} run of {method}"
    ):
        figures.hearing(make_words_record(0.1, method=method, status=status), make_corpus(), 0)


def test_boxes_in_percent_share_one_scale():
    records = [make_words_record(0.2 * seed, method=method, seed=seed) for method in METHODS for seed in range(5)]
    figure = box_plot(records, {("cw", 500): (0.168, 0.035)}, PERCENT, together=METHODS)
    srn, lstm, cw = figure.axes
    assert srn.get_shared_y_axes().joined(srn, cw)
    assert srn.get_ylim() == lstm.get_ylim() == cw.get_ylim()
    assert srn.get_ylim()[0] == 0
    assert srn.get_ylabel() == "test error [%]"
    corners = cw.patches[0].get_path().vertices
    assert sorted(set(corners[:-1, 1])) == pytest.approx([20, 60])
    assert cw.containers[0].lines[0].get_ydata().tolist() == pytest.approx([16.8])


def test_a_search_is_drawn_in_percent():
    records = [
        make_words_record(0.2 * (1 + seed), seed=seed, learning_rate=rate)
        for rate in (1e-4, 1e-3)
        for seed in (0, 1, 2)
    ]
    figure = search_curve(records, {"cw": 3e-4}, PERCENT)
    [line] = lines(figure, "search-cw-500")
    assert line.get_ydata().tolist() == pytest.approx([40, 40])
    assert figure.axes[0].get_ylabel() == "test error [%]"


CASES = {
    "one run, no error": lambda: [make_words_record(0.0)],
    "all wrong": lambda: [make_words_record(1.0, method=method) for method in METHODS],
    "all diverged": lambda: [make_words_record(0.1, seed=seed, status="diverged") for seed in range(2)],
    "all failed": lambda: [make_words_record(0.1, status="failed")],
    "never learnt": lambda: [make_words_record(0.8, status="diverged", epochs_made=0)],
    "sizes that differ by method": lambda: [make_words_record(0.2), make_words_record(0.4, method="srn", size=1000)],
}


@pytest.mark.parametrize("case", CASES)
def test_every_figure_can_be_drawn(case):
    """Warnings are errors here, including those of matplotlib."""
    records = CASES[case]()
    drawn = [box_plot(records, {("cw", 500): (0.168, 0.035)}, PERCENT, together=METHODS)]
    drawn += [search_curve(records, dict.fromkeys(METHODS, 3e-4), PERCENT)]
    drawn += [figures.learning_curves(records)]
    if any(record.status == "finished" for record in records):
        drawn += [figures.confusions(records, make_corpus())]
    record = statistics.best_record(record for record in records if record.run.method == "cw")
    if record is not None:
        drawn += [figures.hearing(record, make_corpus(), figures.choose_utterance(record, make_corpus()))]
    for figure in drawn:
        # the layout takes most of the time, and the tests of the page cover it
        figure.set_layout_engine("none")
        assert drawing.render(figure, "png", dpi=30).startswith(b"\x89PNG")
