"""The figures of the evaluation tasks show the numbers of the records: many methods, several budgets and lengths."""

import math
from itertools import pairwise

import numpy as np
import pytest
from support.made_evaluations import make_evaluation_record, make_examples

from cwrnn.experiments.evaluation import figures
from cwrnn.experiments.evaluation.task import EVALUATIONS, count_run_operations
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.report.drawing import NAMES, render

ADDING, COPY = EVALUATIONS[:2]


def find_artists(figure, gid):
    return [artist for panel in figure.axes for artist in panel.get_children() if artist.get_gid() == gid]


def read_texts(panel):
    return [text.get_text() for text in panel.texts]


def count_operations(records):
    return {(each.run.data, each.run.method, each.run.size): count_run_operations(each.run) for each in records}


def test_one_budget_is_ranked_by_the_mean_error():
    records = [
        make_evaluation_record(error, method=method, seed=seed)
        for method, errors in {"srn": (0.1, 0.3), "gru": (1e-4, 3e-4), "cw": (1e-3, 2e-3)}.items()
        for seed, error in enumerate(errors)
    ]
    records += [make_evaluation_record(math.nan, method="lstm", status="diverged")]
    records += [make_evaluation_record(math.nan, method="cw", seed=9, status="diverged")]
    figure = figures.draw_errors(records, ADDING, [records[0].run.data])
    [panel] = figure.axes
    assert [text.get_text() for text in panel.get_yticklabels()] == ["GRU", "CW-RNN", "SRN", "LSTM"]
    assert panel.get_xscale() == "log"
    [dots] = find_artists(figure, "errors-0-cw")
    np.testing.assert_allclose(dots.get_xdata(), [1e-3, 2e-3])
    [stroke] = find_artists(figure, "mean-0-gru")
    np.testing.assert_allclose(stroke.get_xdata(), [2e-4, 2e-4])
    assert find_artists(figure, "errors-0-lstm") == []
    texts = read_texts(panel)
    assert "0.0015   (1 run lost)" in texts
    assert "no run finished" in texts
    [baseline] = find_artists(figure, "baseline")
    np.testing.assert_allclose(baseline.get_xdata(), [1 / 6, 1 / 6])


def test_shares_are_drawn_in_percent_and_zero_is_within_the_frame():
    data = make_examples("copy", 100)
    records = [
        make_evaluation_record(error, method=method, data=data) for method, error in {"srn": 0.87, "cw": 0.0}.items()
    ]
    figure = figures.draw_errors(records, COPY, [data.name])
    [panel] = figure.axes
    assert panel.get_xlabel() == "test error [%]"
    assert panel.get_xscale() == "linear"
    assert panel.get_xlim()[0] < 0 < 87.5 < panel.get_xlim()[1]
    [dots] = find_artists(figure, "errors-0-srn")
    np.testing.assert_allclose(dots.get_xdata(), [87.0])
    assert {"87.0 %", "0.0 %"} <= set(read_texts(panel))


def test_several_budgets_are_lines_of_means_over_parameters():
    records = [
        make_evaluation_record(scale * 100 / size, method=method, size=size, seed=seed)
        for method in ("cw", "gru")
        for size in (500, 1000, 2000)
        for seed, scale in enumerate((0.1, 0.3))
    ]
    figure = figures.draw_errors(records, ADDING, [records[0].run.data])
    [panel] = figure.axes
    [line] = find_artists(figure, "lines-0-cw")
    mine = [record for record in records if record.run.method == "cw" and record.run.seed == 0]
    np.testing.assert_allclose(line.get_xdata(), [record.parameters for record in mine])
    np.testing.assert_allclose(line.get_ydata(), [0.04, 0.02, 0.01])
    assert panel.get_xscale() == "log"
    assert {"CW-RNN", "GRU"} <= set(read_texts(panel))


@pytest.mark.parametrize("seconds", [0.0, 3.0, 3e5])
def test_seconds_are_drawn_at_their_place(seconds):
    records = [make_evaluation_record(error, method=method) for method, error in (("cw", 0.1), ("gru", 0.2))]
    costs = dict.fromkeys(count_operations(records), seconds)
    figure = figures.draw_costs(records, ADDING, [records[0].run.data], "seconds", costs)
    assert "seconds" in figure.axes[0].get_xlabel()
    for record in records:
        [point] = find_artists(figure, f"seconds-0-{record.run.method}-1000")
        np.testing.assert_allclose(point.get_xdata(), [seconds])


def test_operations_are_those_of_the_networks():
    errors = {"srn": 0.1, "cw": 0.02, "gru": 0.001, "lstm": 0.2}
    records = [make_evaluation_record(error, method=method) for method, error in errors.items()]
    figure = figures.draw_costs(records, ADDING, [records[0].run.data], "operations", count_operations(records))
    for record in records:
        [point] = find_artists(figure, f"operations-0-{record.run.method}-1000")
        np.testing.assert_allclose(point.get_xdata(), [count_run_operations(record.run)])
        np.testing.assert_allclose(point.get_ydata(), [record.error])
    [front] = find_artists(figure, "front")
    # the LSTM costs more than the CW-RNN and has a higher error
    np.testing.assert_allclose(front.get_ydata(), [0.02, 0.001])
    assert {NAMES[method] for method in errors} <= set(read_texts(figure.axes[0]))


def test_names_of_twenty_methods_do_not_cover_each_other():
    rng = np.random.default_rng(0)
    values = [(method, 10 ** rng.uniform(-4, -1)) for method in NAMES]
    panel = figures.new_figure(7.4, 4.9).subplots()
    panel.set(xscale="log", yscale="log", xlim=(2e3, 2e4), ylim=(1e-5, 1))
    points = [figures._Point(method, 1, 10 ** rng.uniform(3.9, 4.05), [error]) for method, error in values]
    panel.figure.draw_without_rendering()
    figures._name_points(panel, points)
    panel.figure.draw_without_rendering()
    renderer = panel.figure._get_renderer()
    boxes = [panel.get_window_extent().padded(3), *(text.get_window_extent(renderer) for text in panel.texts)]
    assert len(boxes) == 21
    frame, *names = boxes
    # the extent of a text with a line to its point has the line in it
    plain = [box for box, text in zip(names, panel.texts, strict=True) if text.arrow_patch is None]
    overlaps = sum(a.overlaps(b) for place, a in enumerate(plain) for b in plain[:place])
    assert overlaps <= 2
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in names)


def test_a_baseline_is_known_only_if_it_was_drawn():
    for error, is_drawn in ((0.17, True), (1e-4, False)):
        figure = figures.draw_errors([make_evaluation_record(error)], ADDING, [make_examples().name])
        assert figures.has_baseline(figure) is is_drawn


def test_bits_are_written_as_the_task_writes_them():
    characters = EVALUATIONS[-1]
    write = figures.make_number_format(characters)
    assert (write(1.23456), write(math.nan)) == (characters.format_error(1.23456), "none")


@pytest.mark.parametrize("values", [[0.5] * 20, np.linspace(0, 1, 20).tolist(), [0.0] * 10 + [1.0] * 10, [0.3]])
def test_names_are_moved_apart_and_stay_in_order(values):
    gap = 0.05
    places = figures._spread(values, gap)
    assert len(places) == len(values)
    assert all(after - before >= gap - 1e-9 for before, after in pairwise(places))
    assert -1e-9 <= places[0] <= places[-1] <= 1 + 1e-9


@pytest.mark.parametrize("methods", [["cw", "gru"], list(NAMES)])
def test_curves_show_the_validation_error_against_seconds(methods):
    records = [
        make_evaluation_record(0.01, method=method, seed=seed, validation=0.02, seconds=50.0, epochs=2)
        for method in methods
        for seed in range(2)
    ]
    records += [make_evaluation_record(math.nan, method="srn", seed=7, status="failed", traceback="Error")]
    figure = figures.draw_curves(records, ADDING)
    [curve] = find_artists(figure, "curve-gru-1")
    np.testing.assert_allclose(curve.get_xdata(), [25, 50])
    np.testing.assert_allclose(curve.get_ydata(), [0.04, 0.02], rtol=1e-6)
    panels = [panel for panel in figure.axes if panel.get_visible()]
    if len(methods) == 2:
        assert len(panels) == 1
        assert {"CW-RNN", "GRU"} <= set(read_texts(panels[0]))
    else:
        assert [panel.get_title(loc="left") for panel in panels] == [NAMES[method] for method in methods]


def test_a_curve_of_one_point_is_a_marker():
    records = [make_evaluation_record(0.01, method=method, epochs=1) for method in ("esn", "cw")]
    figure = figures.draw_curves(records, ADDING)
    [curve] = find_artists(figure, "curve-esn-0")
    assert curve.get_marker() not in ("", "None")


def test_lengths_are_lines_over_the_length():
    data = [make_examples("adding", length) for length in (1000, 50, 200)]
    records = [
        make_evaluation_record(each.length * 1e-4, method=method, data=each)
        for each in data
        for method in ("cw", "lstm")
    ]
    lengths = {each.name: each.length for each in data}
    figure = figures.draw_lengths(records, ADDING, lengths, "length")
    [line] = find_artists(figure, "lines-0-lstm")
    np.testing.assert_allclose(line.get_xdata(), [50, 200, 1000])
    np.testing.assert_allclose(line.get_ydata(), [0.005, 0.02, 0.1])


@pytest.mark.parametrize("task", [ADDING, COPY], ids=lambda task: task.name)
@pytest.mark.parametrize("errors", [(0.5,), (0.0, 0.0), (1e-12, 1.0)])
def test_figures_of_any_errors_can_be_drawn(task, errors):
    data = make_examples()
    records = [make_evaluation_record(error, seed=seed, data=data) for seed, error in enumerate(errors)]
    for figure in (
        figures.draw_errors(records, task, [data.name]),
        figures.draw_costs(records, task, [data.name], "operations", count_operations(records)),
        figures.draw_curves(records, task),
    ):
        figure.draw_without_rendering()


def test_the_same_records_make_the_same_bytes():
    records = [
        make_evaluation_record(0.01 * (1 + seed), method=method, seed=seed) for method in METHODS for seed in (0, 1)
    ]
    operations = count_operations(records)
    first, second = (
        render(figures.draw_costs(records, ADDING, [records[0].run.data], "operations", operations), "svg")
        for _ in range(2)
    )
    assert first == second
