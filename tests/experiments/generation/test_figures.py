"""The figures of sequence generation show the right numbers, and can be drawn for every store."""

import math

import numpy as np
import pytest
from support.made_records import HIDDEN, make_dataset, make_record

from cwrnn import Schedule
from cwrnn.experiments import paper
from cwrnn.experiments.generation import figures, training, weight_coding
from cwrnn.experiments.report import drawing, statistics
from cwrnn.experiments.report.figures import box_plot, search_curve
from cwrnn.experiments.report.numbers import format_error

METHODS = ("srn", "lstm", "cw")


def many(count=30, methods=METHODS, sizes=(100, 200), data=None, lost=3):
    """Returns records with errors that spread over decades; some runs diverged and one failed."""
    generator = np.random.default_rng(0)
    data = data or [make_dataset()]
    records = []
    for method in methods:
        for size in sizes:
            for seed in range(count):
                nmse = float(np.exp(generator.normal(-3 if method == "cw" else -1, 1.2)))
                status = "diverged" if seed < lost else "failed" if lost and seed == lost else "finished"
                records.append(
                    make_record(nmse, method=method, size=size, seed=seed, status=status, data=data[seed % len(data)])
                )
    return records


def lines(figure, gid):
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def texts(figure):
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return [*found, *(label.get_text() for axes in figure.axes for label in axes.get_xticklabels())]


def test_a_box_has_the_percentiles_of_numpy():
    values = [0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 5.0, 0.001]
    records = [make_record(nmse, seed=seed) for seed, nmse in enumerate(values)]
    records += [make_record(0.0, seed=20, status="diverged"), make_record(0.0, seed=21, status="failed")]
    box = statistics.box(records)
    assert (box.finished, box.diverged, box.failed) == (9, 1, 1)
    assert [box.lower, box.median, box.upper] == np.percentile(values, [25, 50, 75]).tolist()
    assert box.mean == pytest.approx(np.mean(values))
    assert (box.minimum, box.maximum) == (0.001, 5.0)
    assert box.outliers == (0.001, 5.0)
    assert box.whiskers == (0.1, 0.16)


def test_a_box_is_that_of_matplotlib():
    cbook = pytest.importorskip("matplotlib.cbook")
    records = many(60, ("cw",), (100,))
    values = [record.error for record in records if record.status == "finished"]
    [expected] = cbook.boxplot_stats(values)
    box = statistics.box(records)
    assert (box.lower, box.median, box.upper) == pytest.approx((expected["q1"], expected["med"], expected["q3"]))
    assert box.whiskers == pytest.approx((expected["whislo"], expected["whishi"]))
    assert box.outliers == pytest.approx(sorted(expected["fliers"]))
    assert len(box.outliers) > 0


def test_a_box_without_finished_runs_has_no_numbers():
    box = statistics.box([make_record(0.1, status="diverged")])
    assert (box.finished, box.diverged) == (0, 1)
    assert math.isnan(box.mean)


def test_boxes_are_drawn_where_the_numbers_are():
    records = many()
    figure = box_plot(records, {("cw", 200): (0.007, 0.004)})
    srn, lstm, cw = figure.axes
    for panel, method in zip(figure.axes, METHODS, strict=True):
        assert panel.get_title("left") == drawing.NAMES[method]
        assert len(panel.patches) == 2
        for place, (patch, size) in enumerate(zip(panel.patches, (100, 200), strict=True)):
            box = statistics.box(r for r in records if (r.run.method, r.run.size) == (method, size))
            corners = patch.get_path().vertices
            assert sorted(set(corners[:-1, 1])) == [box.lower, box.upper]
            assert corners[:, 0].mean() == pytest.approx(place, abs=0.3)
            drawn = {tuple(line.get_ydata()) for line in panel.lines}
            assert {(box.median, box.median), (box.mean,), (box.lower, box.whiskers[0])} <= drawn
            rows = panel.get_xticklabels()[place].get_text().splitlines()
            assert rows == [str(size), str(HIDDEN[method][size]), "3 of 30", "1 of 30"]
    # the SRN on its own scale
    assert lstm.get_ylim() == cw.get_ylim() != srn.get_ylim()
    assert cw.get_shared_y_axes().joined(lstm, cw)
    assert not cw.get_shared_y_axes().joined(srn, cw)
    assert [mark.lines[0].get_ydata().tolist() for mark in cw.containers] == [[0.007]]
    assert not srn.containers


def test_runs_above_the_frame_are_counted():
    records = [make_record(1 + seed / 100, method="srn", seed=seed) for seed in range(20)]
    records += [make_record(1e9, method="srn", seed=30), make_record(1e5, method="srn", seed=31)]
    figure = box_plot(records)
    assert figure.axes[0].get_ylim()[1] < 2
    assert "↑ 2, mean" in texts(figure)


def test_the_best_record_has_the_lowest_error():
    worse, best, diverged = (
        make_record(0.2, seed=1),
        make_record(0.1, seed=2),
        make_record(0.01, seed=3, status="diverged"),
    )
    assert statistics.best_record([worse, best, diverged]) is best
    assert (
        statistics.best_record(
            [make_record(0.5, seed=4, status="failed"), diverged, make_record(0.3, seed=5, status="diverged")]
        )
        is diverged
    )
    assert statistics.best_record([make_record(0.5, status="failed")]) is None
    assert statistics.best_record([]) is None
    twins = [make_record(0.1, seed=seed) for seed in range(5)]
    assert statistics.best_record(twins) is statistics.best_record(twins[::-1])


def test_outputs_are_those_of_the_best():
    data = {name: make_dataset(name, seed=seed) for seed, name in enumerate(["one", "two"])}
    records = many(10, data=list(data.values()))
    figure = figures.outputs(records, data)
    panels = np.array(figure.axes).reshape(2, 3)
    for row, name in zip(panels, data, strict=True):
        for panel, method in zip(row, METHODS, strict=True):
            record = statistics.best_record(r for r in records if (r.run.data, r.run.method) == (name, method))
            target, output = panel.lines
            np.testing.assert_array_equal(target.get_ydata(), data[name].samples)
            np.testing.assert_array_equal(output.get_ydata(), record.output)
            np.testing.assert_allclose(output.get_xdata()[-1], 1000 * 47 / 8000)
            assert f"NMSE {format_error(record.error)}" in panel.texts[0].get_text()


def test_outputs_of_diverged_runs_are_drawn_and_called_diverged():
    record = make_record(0.4, status="diverged")
    figure = figures.outputs([record, make_record(0.9, seed=1, status="diverged")], {"tune": make_dataset()})
    [line] = lines(figure, "output-cw-0")
    np.testing.assert_array_equal(line.get_ydata(), record.output)
    assert texts(figure)[0] == "diverged; its best: NMSE 0.40"
    figure = figures.outputs([make_record(0.4, status="failed")], {"tune": make_dataset()})
    assert texts(figure)[0] == "no run finished"


def test_a_curve_has_the_percentiles_of_numpy():
    records = [make_record(nmse, seed=seed) for seed, nmse in enumerate([0.1, 0.4, 0.2, 0.7, 0.3])]
    epochs, quartiles = statistics.quartile_curve([*records, make_record(0.0, seed=9, status="diverged")])
    assert epochs.tolist() == [0, 2, 4, 6]
    expected = np.percentile([record.curve[:, 1] for record in records], [25, 50, 75], axis=0)
    np.testing.assert_allclose(quartiles, expected)
    figure = figures.learning_curves([*records, make_record(0.0, seed=9, status="diverged")])
    [line] = lines(figure, "median-cw-100")
    np.testing.assert_allclose(line.get_ydata(), expected[1])
    assert "CW-RNN: 1 of 6 diverged" in texts(figure)


def test_a_shorter_run_leaves_the_rest_of_the_curve_to_the_others():
    long, short = make_record(0.5, epochs=6), make_record(0.1, epochs=3)
    epochs, quartiles = statistics.quartile_curve([long, short])
    assert epochs.tolist() == [0, 1, 2, 3, 4, 6]
    # after its last epoch, only the other is left
    np.testing.assert_allclose(quartiles[:, -1], long.curve[-1, 1])
    np.testing.assert_allclose(quartiles[1, 3], (0.1 + np.interp(3, *long.curve.T)) / 2, rtol=1e-6)


def test_activations_show_the_states():
    data = make_dataset(steps=70)
    record = make_record(0.3, data=data, hidden=7, modules=4)
    figure = figures.activations(record, data)
    top, *panels = figure.axes
    np.testing.assert_array_equal(top.lines[0].get_ydata(), data.samples)
    np.testing.assert_array_equal(top.lines[1].get_ydata(), record.output)
    assert [panel.get_ylabel() for panel in panels] == ["period 8", "period 4", "period 2", "period 1"]
    assert [panel.texts[0].get_text() for panel in panels] == ["1 unit", "2 units", "2 units", "2 units"]
    states = training.states("cw", 7, record.weights, 70, record.run.settings)
    schedule = Schedule.parse(record.schedule)
    for panel, module in zip(panels, (3, 2, 1, 0), strict=True):
        drawn = np.array([line.get_ydata() for line in panel.lines])
        np.testing.assert_array_equal(drawn, states[:, schedule.slices[module]].T)
        # the drawn states are held between ticks, and change at some ticks
        moved = np.flatnonzero(np.diff(drawn, axis=1).any(axis=0)) + 1
        assert set(moved % schedule.periods[module]) == {0}


@pytest.mark.parametrize(("method", "status"), [("srn", "finished"), ("cw", "failed")])
def test_activations_refuse_other_methods_and_failed_runs(method, status):
    with pytest.raises(
        ValueError, match=f"record must have a trained network with clocks, got a {status} run of {method}"
    ):
        figures.activations(make_record(0.1, method=method, status=status), make_dataset())


def test_rate_distortion_shows_the_points():
    records = many(6, lost=1)
    points = weight_coding.measure(records, {"tune": make_dataset()})
    baselines = weight_coding.baselines([make_dataset()])
    figure = figures.rate_distortion(points, baselines)
    for which in ("best", "median"):
        for method in METHODS:
            for bits in (8, 32):
                mine = [point for point in points if (point.method, point.bits) == (method, bits)]
                [line] = lines(figure, f"{which}-{method}-{bits}")
                assert line.get_xdata().tolist() == [point.bits_per_sample for point in mine]
                assert line.get_ydata().tolist() == [getattr(point, which) for point in mine]
    for which in ("best", "median"):
        [line] = lines(figure, f"pcm-{which}")
        assert line.get_ydata().tolist() == [each.nmse for each in baselines]


def searches(methods=METHODS):
    return [
        make_record(0.1 * (seed + 1) * rate * 1e4, method=method, seed=seed, task="search", learning_rate=rate,
             status="diverged" if (rate == 1e-3 and seed > 1) or rate == 3e-3 else "finished")
        for method in methods
        for rate in (1e-4, 3e-4, 1e-3, 3e-3)
        for seed in range(5)
    ]  # fmt: skip


def test_a_search_counts_diverged_runs_as_infinitely_bad():
    records = searches(("cw",))
    found = statistics.rate_outcomes(reversed(records))
    assert [outcome.learning_rate for outcome in found] == [1e-4, 3e-4, 1e-3, 3e-3]
    assert [each.diverged for each in found] == [0, 0, 3, 5]
    assert [each.runs for each in found] == [5] * 4
    assert (found[0].lower, found[0].median, found[0].upper) == pytest.approx((0.2, 0.3, 0.4))
    # most runs diverged, so the median is infinite although some runs finished
    assert (found[2].lower, found[2].median) == (pytest.approx(2.0), math.inf)
    figure = search_curve(searches(), paper.GENERATION_LEARNING_RATES)
    for method in METHODS:
        [line] = lines(figure, f"search-{method}-100")
        assert line.get_ydata()[:2].tolist() == [each.median for each in found[:2]]
        assert np.isnan(line.get_ydata()[2:]).all()
        shares = [c for axes in figure.axes for c in axes.collections if c.get_gid() == f"share-{method}"]
        assert [segment[1][1] for segment in shares[0].get_segments()] == [0, 0, 60, 100]


CASES = {
    "one run": lambda: [make_record(0.1)],
    "one run, an error of 0": lambda: [make_record(0.0)],
    "all diverged": lambda: [make_record(0.1, method=m, seed=s, status="diverged") for m in METHODS for s in range(3)],
    "one method all diverged": lambda: [
        make_record(0.1, method=m, seed=s, status="diverged" if m == "srn" else "finished")
        for m in METHODS
        for s in range(3)
    ],
    "all failed": lambda: [make_record(0.1, status="failed")],
    "sizes that differ by method": lambda: many(3, ("cw",), (100,), lost=0) + many(3, ("srn",), (200,), lost=0),
    "never finite": lambda: [
        make_record(math.inf, status="diverged"),
        make_record(math.nan, seed=1, status="diverged"),
    ],
    "names that cannot be drawn": lambda: many(
        4,
        ("cw",),
        data=[make_dataset("$x_{"), make_dataset("音楽 \n\t🎵 <b>"), make_dataset("a" * 300), make_dataset("")],
        lost=0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_figure_can_be_drawn(case):
    """Warnings are errors here, including those of matplotlib about missing glyphs and axes that are not positive."""
    records = CASES[case]()
    data = {record.run.data: make_dataset(record.run.data) for record in records}
    drawn = [
        box_plot(records, {("cw", 100): (0.007, 0.004)}),
        figures.outputs(records, data),
        figures.learning_curves(records),
        search_curve(records, paper.GENERATION_LEARNING_RATES),
        figures.rate_distortion(weight_coding.measure(records, data), weight_coding.baselines(data.values())),
    ]
    record = statistics.best_record(record for record in records if record.run.method == "cw")
    if record is not None:
        drawn.append(figures.activations(record, data[record.run.data]))
    for figure in drawn:
        # the layout takes most of the time, and the tests of the page cover it
        figure.set_layout_engine("none")
        assert drawing.render(figure, "png", dpi=30).startswith(b"\x89PNG")


def test_twelve_data_sets_of_different_lengths_have_their_own_time_axes():
    data = {f"number {n}": make_dataset(f"number {n}", seed=n, steps=20 + n) for n in range(12)}
    figure = figures.outputs([make_record(0.1, data=each) for each in data.values()], data)
    assert [axes.get_ylabel() for axes in figure.axes] == list(data)
    assert [axes.get_xlim()[1] for axes in figure.axes] == pytest.approx([(19 + n) / 8 for n in range(12)])
    assert drawing.render(figure, "png", dpi=30).startswith(b"\x89PNG")


def test_the_users_style_does_not_change_the_bytes():
    matplotlib = pytest.importorskip("matplotlib")
    records = many(8)
    drawn = {form: drawing.render(box_plot(records), form) for form in ("svg", "png")}
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.grid": False, "text.color": "red"}):
        for form, expected in drawn.items():
            assert drawing.render(box_plot(records), form) == expected
    assert b"<dc:date>" not in drawn["svg"]


def test_labels_fit_and_have_no_missing_glyphs():
    assert drawing.fit_label("a_b $c$", 20) == r"a_b \$c\$"
    assert drawing.fit_label("音\n\x00b", 20) == "???b"
    assert drawing.fit_label("abcdefgh", 5) == "abcd…"
