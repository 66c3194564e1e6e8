"""The chapter of an evaluation task has the numbers of the records, whatever finished, and shares pages with others."""

import dataclasses
import json
import math

import numpy as np
import pytest
from support.html_pages import HOSTILE, Page, fill_store
from support.made_evaluations import make_evaluation_record, make_examples
from support.made_images import write_images
from support.made_records import make_dataset, make_record

from cwrnn.experiments.evaluation.chapter import (
    check_records,
    choose_settings,
    describe_runs,
    find_fastest,
    find_standings,
    format_training,
    list_settings,
    make_chapter,
    measure_after,
    sort_data,
)
from cwrnn.experiments.evaluation.images import read_images
from cwrnn.experiments.evaluation.result import summarise_evaluation
from cwrnn.experiments.evaluation.task import EVALUATIONS, count_run_operations
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.report.page import list_figure_titles, write_store_report
from cwrnn.experiments.sweep.store_file import StoreError

ADDING, COPY = EVALUATIONS[:2]
SHORT, LONG = make_examples("adding", 200), make_examples("adding", 1000)

pytestmark = pytest.mark.usefixtures("undrawn")


def write_page(folder, records, *data):
    with fill_store(folder, records, {each.name: each for each in data}, command="cwrnn evaluate adding") as store:
        report = write_store_report(store, folder)
    return Page(report.page.read_text(encoding="utf-8")), json.loads(report.summary.read_text())


def read_text(page):
    """Return the text of a page without its line breaks."""
    return " ".join(page.text.split())


def read_cells(folder, method):
    """Return the texts of the cells of every row of a method in the table of all numbers."""
    html = (folder / "index.html").read_text()
    table = html[html.index("<h3>All numbers</h3>") : html.index("<h3>Details</h3>")]
    rows = [row for row in table.split("<tr")[1:] if f'<td class="{method}">' in row]
    return [[cell.split(">", 1)[1].split("</td")[0] for cell in row.split("<td")[1:]] for row in rows]


def test_the_table_has_the_numbers_of_the_records(tmp_path):
    records = [
        make_evaluation_record(error, seed=seed, validation=2 * error, seconds=seconds)
        for seed, (error, seconds) in enumerate([(0.010, 30.0), (0.020, 20.0), (0.060, 70.0)])
    ]
    records += [make_evaluation_record(math.nan, seed=8, status="diverged")]
    page, numbers = write_page(tmp_path, records, SHORT)
    [row] = numbers["adding"]["rows"]
    run = records[0].run
    # the mean of 0.01, 0.02 and 0.06, and the root of half the sum of the squares 0.0004, 0.0001 and 0.0009
    expected = {"error": 0.03, "deviation": math.sqrt(0.0014 / 2), "best": 0.01, "validation": 0.06, "seconds": 30.0}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert (row["runs"], row["diverged"], row["failed"]) == (4, 1, 0)
    assert (row["parameters"], row["multiply_adds"]) == (run.parameters, count_run_operations(run))
    [cells] = read_cells(tmp_path, "cw")
    assert cells == [
        "CW-RNN", "0.030 ± 0.026", "0.010", "0.060", f"{count_run_operations(run):,.0f}", "30", str(run.parameters),
        str(run.hidden), "1, 2, 4, 8", "5", "4 (1)",
    ]  # fmt: skip
    assert "1 method with at most 1,000 parameters: 4 runs, of which 1 diverged." in page.text
    assert "CW-RNN (0.030 ± 0.026) has the lowest mean MSE." in page.text
    assert numbers["adding"]["counts"] == {"finished": 3, "diverged": 1, "failed": 0}


def test_shares_are_written_in_percent(tmp_path):
    data = make_examples("copy", 100)
    records = [make_evaluation_record(error, seed=seed, data=data) for seed, error in enumerate([0.1, 0.3])]
    page, _ = write_page(tmp_path, records, data)
    [cells] = read_cells(tmp_path, "cw")
    assert cells[1:4] == ["20.0 ± 14.1 %", "10.0 %", "20.0 %"]
    assert "10 ln 8 / (T + 20), which is 0.0204 for T = 1000" in page.text
    assert round(10 * math.log(8) / 1020, 4) == 0.0204


def test_the_best_method_comes_first_and_is_marked(tmp_path):
    errors = {"srn": 0.2, "gru": 0.001, "cw": 0.05}
    records = [make_evaluation_record(error, method=method) for method, error in errors.items()]
    page, numbers = write_page(tmp_path, records, SHORT)
    assert [row["method"] for row in numbers["adding"]["rows"]] == ["gru", "cw", "srn"]
    html = (tmp_path / "index.html").read_text()
    assert html.count('<tr class="best">') == 1
    assert '<tr class="best"><td class="gru">' in html
    assert "GRU (0.0010) has the lowest mean MSE, followed by CW-RNN (0.050) and SRN" in page.text


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_page_without_finished_runs_says_so(tmp_path, status):
    records = [make_evaluation_record(math.nan, status=status, traceback=f"Error: {HOSTILE}")]
    page, numbers = write_page(tmp_path, records, SHORT)
    assert "No run has finished yet." in page.text
    assert "script" not in page.tags
    assert page.tags.count("svg") == 0
    assert numbers["adding"]["rows"][0]["error"] is None
    [cells] = read_cells(tmp_path, "cw")
    assert cells[1:4] == ["none", "none", "none"]


def test_a_store_without_the_task_has_no_chapter(tmp_path):
    with fill_store(tmp_path, [make_evaluation_record(0.1)], {"data": SHORT}) as store:
        assert make_chapter(store, COPY) is None
        assert make_chapter(store, ADDING).task == "adding"


def test_settings_are_chosen_by_the_validation_part_and_never_by_the_test(tmp_path):
    lucky = [make_evaluation_record(0.001, seed=seed, validation=0.1, learning_rate=1e-2) for seed in range(2)]
    chosen = [make_evaluation_record(0.03, seed=seed, validation=0.02, learning_rate=1e-3) for seed in range(2)]
    # its only finished run is better, but half of the runs are lost
    unstable = [make_evaluation_record(0.01, validation=0.01, learning_rate=1e-1)]
    unstable += [make_evaluation_record(math.nan, seed=s, status="diverged", learning_rate=1e-1) for s in (1, 2)]
    found = choose_settings([*lucky, *chosen, *unstable], ADDING, {SHORT.name: SHORT})
    assert {record.key for record in found.drawn} == {record.key for record in chosen}
    assert (found.listed, len(found.others)) == ([], 5)
    page, numbers = write_page(tmp_path, [*lucky, *chosen, *unstable], SHORT)
    assert [row["learning_rate"] for row in numbers["adding"]["rows"]] == [1e-3]
    assert sorted(row["learning_rate"] for row in numbers["adding"]["other_rows"]) == [1e-2, 1e-1]
    assert "adding-others" in page.ids
    assert "0.001, 0.01, 0.1" in page.text
    text = read_text(page)
    assert (
        "a single run has none. Learning rates and periods compete only at equal epochs, updates, batch and device."
        in text
    )
    assert "settings can have different numbers of runs" in text


@pytest.mark.parametrize("changed", [{"epochs": 9}, {"updates": 900}, {"batch": 64}, {"device": "cuda"}])
def test_settings_compete_only_at_equal_amounts_of_training(changed):
    slow = [make_evaluation_record(0.3, seed=seed, learning_rate=1e-4) for seed in range(3)]
    usual = [make_evaluation_record(0.2, seed=seed) for seed in range(3)]
    longer = make_evaluation_record(0.001, **changed)
    found = choose_settings([longer, *slow, *usual], ADDING, {SHORT.name: SHORT})
    assert {record.key for record in found.drawn} == {record.key for record in usual}
    assert [record.key for record in found.listed] == [longer.key]
    assert {record.key for record in found.others} == {record.key for record in slow}


def test_of_equal_numbers_of_runs_the_most_updates_are_drawn(tmp_path):
    # 10 epochs of 100 updates, ended after 300, and 5 epochs
    ended = make_evaluation_record(0.001, epochs=10, updates=300)
    ended = dataclasses.replace(ended, epochs=3, curve=ended.curve[:3])
    whole = make_evaluation_record(0.2, epochs=5)
    assert choose_settings([ended, whole], ADDING, {SHORT.name: SHORT}).drawn == [whole]
    page, numbers = write_page(tmp_path, [ended, whole], SHORT)
    assert [cells[9] for cells in read_cells(tmp_path, "cw")] == ["300 updates (not drawn)", "5"]
    assert [row["epochs"] for row in numbers["adding"]["rows"]] == [5]
    assert [row["updates"] for row in numbers["adding"]["listed_rows"]] == [300]
    assert "CW-RNN (0.20) has the lowest mean MSE." in page.text
    assert "show the one with the most runs, and of equals the one with the most updates" in read_text(page)
    # without its data, a run is as long as its epochs
    assert choose_settings([ended, whole], ADDING, {}).drawn == [ended]


def test_batches_and_devices_are_shown_where_they_differ(tmp_path):
    records = [make_evaluation_record(0.1), make_evaluation_record(0.2, method="srn", batch=64)]
    write_page(tmp_path, records, SHORT)
    assert read_cells(tmp_path, "cw")[0][9:] == ["5", "128", "1"]
    assert read_cells(tmp_path, "srn")[0][9:] == ["5", "64", "1"]


def test_a_fixed_layer_has_no_learning_rate_and_no_epochs(tmp_path):
    records = [make_evaluation_record(0.1, method=method, learning_rate=0.0123) for method in ("esn", "gru")]
    page, _ = write_page(tmp_path, records, SHORT)
    [esn, gru] = list_settings(records)[::-1]
    assert (esn["learning_rate"], esn["epochs"], esn["batch"]) == ("", "", "128")
    assert (gru["learning_rate"], gru["epochs"]) == ("0.0123", "5")
    assert "An echo state network has no descent" in page.text
    part = make_evaluation_record(0.1, method="esn", epochs=1, updates=5)
    part = dataclasses.replace(part, curve=part.curve * np.array([0.05, 1, 1, 1], np.float32))
    assert [format_training(row) for row in summarise_evaluation([part])] == ["5 batches"]
    # other epochs are the same fit
    again = make_evaluation_record(0.1, method="esn", learning_rate=0.0123, epochs=9)
    assert choose_settings([records[0], again], ADDING, {}).listed == []


def test_a_run_that_made_all_epochs_has_them_in_the_table():
    [row] = summarise_evaluation([make_evaluation_record(0.1, epochs=5, updates=10_000)])
    assert (row.updates, format_training(row)) == (None, "5")
    short = make_evaluation_record(0.1, epochs=1, updates=1)
    short = dataclasses.replace(short, curve=short.curve * np.array([0.01, 1, 1, 1], np.float32))
    assert [format_training(row) for row in summarise_evaluation([short])] == ["1 update"]


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (4,), (2, 4, 4), ()])
def test_a_curve_with_other_columns_is_refused_by_the_name_of_its_run(tmp_path, shape):
    record = dataclasses.replace(make_evaluation_record(0.1, seed=7), curve=np.ones(shape, np.float32))
    with pytest.raises(StoreError, match=rf"the run {record.key[:12]} \(cw .* seed 7\) has a curve of the shape"):
        write_page(tmp_path, [make_evaluation_record(0.1), record], SHORT)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"error": b"0.1"}, "a value of 'error' that is no number"),
        ({"seconds": "1"}, "a value of 'seconds' that is no number"),
        ({"schedule": "-1"}, "a schedule that cannot be read"),
        ({"schedule": b"1:2"}, "a schedule that cannot be read"),
    ],
)
def test_a_record_that_no_run_has_is_refused(changed, message):
    record = dataclasses.replace(make_evaluation_record(0.1), **changed)
    with pytest.raises(StoreError, match=f"out: .* the run {record.key[:12]} .* has {message}"):
        check_records([record], "out")


def test_the_line_of_no_memory_is_described_only_if_it_is_drawn(tmp_path):
    near, _ = write_page(tmp_path / "near", [make_evaluation_record(0.17)], SHORT)
    far, _ = write_page(tmp_path / "far", [make_evaluation_record(1e-4)], SHORT)
    assert "The dashed line (the answer 1)" in near.text
    assert "dashed" not in far.text


@pytest.mark.parametrize(("permuted", "kind"), [(False, "sequential-mnist"), (True, "permuted-mnist")])
def test_only_permuted_images_have_permutations(tmp_path, permuted, kind):
    images = read_images(str(write_images(tmp_path / "images")), permuted=permuted)
    page, _ = write_page(tmp_path / "out", [make_evaluation_record(0.1, data=images)], images)
    assert kind in page.ids
    assert ("each has a permutation of its own" in read_text(page)) is permuted
    assert "digit" not in read_text(page).replace("first digits of its key", "")


def test_the_page_says_what_limits_the_comparison(tmp_path):
    few, _ = write_page(tmp_path / "few", [make_evaluation_record(0.1)], SHORT)
    records = [make_evaluation_record(0.1, method=method) for method in ("cw", "gru", "skip", "compressor")]
    many, _ = write_page(tmp_path / "many", records, SHORT)
    for page in (few, many):
        assert "implementations as well as methods: SRN, LSTM and GRU are torch.nn's layers;" in read_text(page)
        assert "begin with orthogonal recurrent weights within each module." in read_text(page)
        assert "standard deviations" not in read_text(page)
    for sentence in (
        "do not count the second bias vector of torch's layers",
        "For Compressor and Skip RNN they are an upper bound",
        "Models of other papers keep first weights of their own.",
        "learning rates were not searched unless the command named them",
    ):
        assert sentence in read_text(many)
        assert sentence not in read_text(few)


def test_twenty_methods_and_two_lengths(tmp_path):
    records = [
        make_evaluation_record(1e-3 * (1 + place), method=method, data=data)
        for place, method in enumerate(ALL_METHODS)
        for data in (LONG, SHORT)
    ]
    page, numbers = write_page(tmp_path, records, SHORT, LONG)
    assert numbers["adding"]["data"] == [SHORT.name, LONG.name]
    assert len(numbers["adding"]["rows"]) == 40
    drawn = {path.stem for path in (tmp_path / "figures" / "adding").iterdir()}
    assert drawn == {"errors", "operations", "seconds", "curves", "lengths"} == set(list_figure_titles()["adding"])
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert [link for link in page.links if not link.startswith("#")] == []
    for method in ALL_METHODS.values():
        assert method.label in page.text
        assert method.source in page.text
    assert f"On {LONG.name} with at most 1,000 parameters, SRN" in page.text


def test_one_data_set_has_no_figure_of_lengths(tmp_path):
    records = [make_evaluation_record(0.1, size=size) for size in (500, 1000)]
    _, numbers = write_page(tmp_path, records, SHORT)
    assert {path.stem for path in (tmp_path / "figures" / "adding").iterdir()} == {
        "errors",
        "operations",
        "seconds",
        "curves",
    }
    assert [row["size"] for row in numbers["adding"]["rows"]] == [500, 1000]


def test_data_sets_are_sorted_by_length():
    records = [make_evaluation_record(0.1, data=make_examples("adding", length)) for length in (1000, 50, 200)]
    assert sort_data(records) == [make_examples("adding", length).name for length in (50, 200, 1000)]


def test_errors_after_some_seconds_are_the_last_that_were_measured():
    # five epochs: after 4, 8, 12, 16 and 20 seconds, and after 40, 80, ... seconds
    quick = make_evaluation_record(0.1, method="gru", seconds=20.0)
    slow = make_evaluation_record(0.01, method="cw", seconds=200.0)
    rows = measure_after([quick, slow], [SHORT.name])
    assert [row.method for row in rows] == ["cw", "gru"]
    clocked, gated = rows
    assert list(gated.errors) == [10, 100]
    assert gated.errors[10] == pytest.approx(quick.curve[1, 3])
    assert gated.errors[100] == pytest.approx(quick.curve[-1, 3])
    assert math.isnan(clocked.errors[10])
    assert clocked.errors[100] == pytest.approx(slow.curve[1, 3])
    assert find_fastest(rows) == {10: gated.errors[10], 100: clocked.errors[100]}
    # the median of three runs, as soon as all have an epoch
    runs = [make_evaluation_record(error, seed=seed, seconds=20.0) for seed, error in enumerate((0.1, 0.2, 0.9))]
    [row] = measure_after(runs, [SHORT.name])
    assert row.errors[10] == pytest.approx(runs[1].curve[1, 3])
    assert measure_after([make_evaluation_record(math.nan, status="diverged")], [SHORT.name]) == []


def test_cheap_and_accurate_methods_are_named():
    errors = {"srn": 0.1, "lstm": 0.2, "cw": 0.02, "gru": 0.001}
    records = [make_evaluation_record(error, method=method) for method, error in errors.items()]
    rows = sorted(summarise_evaluation(records), key=lambda row: row.error)
    costs = {record.run.method: f"{count_run_operations(record.run):,.0f}" for record in records}
    assert describe_runs(records, rows, ADDING)[-1].endswith(f": CW-RNN ({costs['cw']}) and GRU ({costs['gru']}).")


def test_standings_are_those_of_the_largest_budget():
    records = [
        make_evaluation_record(error, method=method, size=size)
        for method, size, error in [("cw", 500, 0.001), ("cw", 1000, 0.1), ("gru", 1000, 0.2)]
    ]
    standings = find_standings(sorted(summarise_evaluation(records), key=lambda row: row.size), ADDING)
    assert standings["size"] == 1000
    assert standings["errors"] == {"cw": "0.10", "gru": "0.20"}
    assert standings["best"] == ["cw"]


def test_the_header_says_what_the_page_has(tmp_path):
    adding, copying = make_evaluation_record(0.1), make_evaluation_record(0.1, data=make_examples("copy", 100))
    music = make_record(0.1)
    one, _ = write_page(tmp_path / "one", [adding], SHORT)
    assert "Recurrent networks, compared" in one.text
    assert "repeats" not in one.text
    assert "on a task by which such networks are judged: the adding problem." in one.text
    two, _ = write_page(tmp_path / "two", [adding, copying], SHORT, make_examples("copy", 100))
    assert "on two tasks by which such networks are judged: the adding problem and the copy task." in two.text
    assert "standings" in two.ids
    assert "standings" not in one.ids
    both, numbers = write_page(tmp_path / "both", [adding, music], SHORT, make_dataset())
    assert "The Clockwork RNN, reproduced" in both.text
    assert "repeats one of the two experiments" in both.text
    assert "It also compares recurrent networks on a task that the paper does" in both.text
    assert {"generation", "adding", "adding-table", "generation-table"} <= set(both.ids)
    assert {"generation", "adding"} <= numbers.keys()
    paper, _ = write_page(tmp_path / "paper", [music], make_dataset())
    assert "It also compares" not in paper.text
    assert "repeats one of the two experiments" in paper.text


def test_names_of_users_are_never_executed(tmp_path):
    data = dataclasses.replace(SHORT, name=HOSTILE, source=f"made by {HOSTILE}")
    page, _ = write_page(tmp_path, [make_evaluation_record(0.1, data=data)], data)
    assert HOSTILE in page.text
    assert "script" not in page.tags


def test_curves_of_any_length_have_a_chapter(tmp_path):
    record = make_evaluation_record(0.1)
    empty = dataclasses.replace(record, curve=np.empty((0, 4), np.float32))
    _, numbers = write_page(tmp_path, [empty], SHORT)
    assert numbers["adding"]["rows"][0]["validation"] is None
    assert {path.stem for path in (tmp_path / "figures" / "adding").iterdir()} == {"errors", "operations", "seconds"}
