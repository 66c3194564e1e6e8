"""The report is self-contained, safe for any name of a data set, and the same for the same store."""

import base64
import contextlib
import dataclasses
import errno
import io
import json
import os
import re

import numpy as np
import pytest
from support.html_pages import HOSTILE, Page, fill_store
from support.made_records import make_dataset, make_record, make_run, train_runs

import cwrnn.experiments
from cwrnn.experiments.errors import ExperimentError
from cwrnn.experiments.generation.chapter import choose_opening, encode_wav, group_by_dataset
from cwrnn.experiments.generation.weight_coding import CODE, OVERHEAD
from cwrnn.experiments.report.numbers import format_error
from cwrnn.experiments.report.page import list_figure_titles, write_report, write_store_report
from cwrnn.experiments.report.statistics import best_record, summarise
from cwrnn.experiments.report.svg import VARIABLES
from cwrnn.experiments.sweep.store import Store

METHODS = ("srn", "lstm", "cw")


@pytest.fixture(scope="module")
def data():
    return {name: make_dataset(name, seed=seed) for seed, name in enumerate(["first", HOSTILE])}


@pytest.fixture(scope="module")
def records(data):
    """Returns records of networks that were trained for a few epochs, and some of runs that diverged or failed."""
    found = []
    for each in data.values():
        runs = [make_run(method, size, seed, each) for method in METHODS for size in (100, 200) for seed in (0, 1)]
        found += train_runs(*runs, data=each)
    first = data["first"]
    found += [make_record(0.4, method="srn", seed=7, status="diverged", data=first)]
    found += [
        make_record(0.4, method="cw", seed=s, status="failed", data=first, traceback=f"Trace\nError: {HOSTILE}")
        for s in (8, 9)
    ]
    for rate in (1e-4, 1e-3):
        found += train_runs(
            *(make_run(method, task="search", data=first, learning_rate=rate) for method in METHODS), data=first
        )
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("report")
    with fill_store(folder, records, data) as store:
        assert write_store_report(store, folder).page == folder / "index.html"
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_the_page_is_self_contained(page, folder):
    assert page.links
    assert [link for link in page.links if not link.startswith(("#", "data:"))] == []
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    # no font or picture from elsewhere
    assert set(re.findall(r"url\((.)", page.styles)) <= {"#"}
    assert "@import" not in page.styles
    # six figures, and four pictures in the opening
    assert page.tags.count("svg") == 10
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", (folder / "index.html").read_text(encoding="utf-8")))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_names_of_users_are_never_executed(page):
    assert HOSTILE in page.text
    assert f"Error: {HOSTILE}" in page.text
    assert "script" not in page.tags


def test_sounds_are_the_outputs(page, records, data):
    soundfile = pytest.importorskip("soundfile")
    expected = []
    # the piece of the opening, and then all pieces
    opening = choose_opening(group_by_dataset([r for r in records if r.run.task == "generation"], data))
    for name, each in [(opening, data[opening]), *data.items()]:
        expected.append(each.samples)
        for method in METHODS:
            mine = [r for r in records if (r.run.task, r.run.data, r.run.method) == ("generation", name, method)]
            expected.append(best_record(mine).output)
    assert len(page.sounds) == len(expected) == 12
    for uri, samples in zip(page.sounds, expected, strict=True):
        assert uri.startswith("data:audio/wav;base64,")
        played, rate = soundfile.read(io.BytesIO(base64.b64decode(uri.split(",")[1])))
        assert rate == 8000
        assert len(played) / rate == pytest.approx(1, abs=0.01)
        # at half of full scale, and again and again
        np.testing.assert_allclose(played.reshape(-1, 48), np.tile(samples / 2, (len(played) // 48, 1)), atol=1e-4)


def test_every_player_has_a_label(page):
    assert len(page.labels) == len(page.sounds)
    assert "first, the original" in page.labels
    assert "first as the CW-RNN generates it" in page.labels


def test_the_page_names_the_runs_that_it_shows(page, records):
    for method in METHODS:
        mine = [r for r in records if (r.run.task, r.run.data, r.run.method) == ("generation", "first", method)]
        assert f"run {best_record(mine).key[:12]}" in page.text


def test_sound_beyond_full_scale_is_cut_off():
    soundfile = pytest.importorskip("soundfile")
    played, _ = soundfile.read(io.BytesIO(encode_wav(np.array([3.0, -3.0, 0.5]), 8000)))
    np.testing.assert_allclose(played[:3], [1, -1, 0.25], atol=1e-4)
    assert len(soundfile.read(io.BytesIO(encode_wav(np.zeros(20000), 8000)))[0]) == 20000


def test_figures_lie_beside_the_page(folder):
    names = sorted(path.name for path in (folder / "figures" / "generation").iterdir())
    assert names == sorted(
        f"{name}.{suffix}"
        for name in list_figure_titles()["generation"].keys() - {"cells"}
        for suffix in ("svg", "png")
    )
    for path in (folder / "figures").rglob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_drawings_take_the_colours_of_the_page(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    for each in drawings:
        for colour, variable in VARIABLES.items():
            assert colour not in each
            assert f"{variable}:" in text
        assert "var(--ink)" in each
    assert sum("var(--cw)" in each for each in drawings) == 7
    assert "prefers-color-scheme: dark" in text


def test_the_same_store_makes_the_same_bytes(folder, tmp_path):
    with Store.read(folder) as store:
        write_store_report(store, tmp_path)
    for path in [folder / "index.html", folder / "summary.json", *(folder / "figures").rglob("*.*")]:
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_the_summary_has_the_numbers_of_the_records(folder, records):
    text = (folder / "summary.json").read_text(encoding="utf-8")
    assert len(text) < 50_000

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    whole = json.loads(text, parse_constant=refuse)
    assert whole.keys() == {"commands", "created", "environments", "damaged", "generation"}
    numbers = whole["generation"]
    assert numbers["counts"] == {"finished": 24, "diverged": 1, "failed": 2}
    assert numbers["search_counts"] == {"finished": 6, "diverged": 0, "failed": 0}
    assert numbers["seconds"] == 0.5 * len(records)
    generation = [record for record in records if record.run.task == "generation"]
    rows = summarise(generation)
    assert [(row["method"], row["size"], row["runs"], row["mean"]) for row in numbers["rows"]] == [
        (row.method, row.size, row.runs, pytest.approx(row.mean)) for row in rows
    ]
    assert [point["bits"] for point in numbers["compression"]] == [32, 8] * 6
    assert len(numbers["search"]) == 6
    assert whole["environments"][0]["runs"] == len(records)
    assert whole["commands"] == ["cwrnn reproduce generation --out here"]


def test_tables_show_the_rows(page, records):
    for row in summarise(record for record in records if record.run.task == "generation"):
        assert f"{format_error(row.mean)} ± {format_error(row.std)}" in page.text
    assert "1 run, counted in the table above" in page.text
    assert "2 runs: Error:" in page.text


def test_a_single_run_can_be_repeated_as_the_page_says(page, folder):
    code = page.preformatted["generation-again"]
    assert 'Store.read("DIR/runs.sqlite")' in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("DIR", str(folder)), {})
    before, after = printed.getvalue().split()
    assert float(before) == float(after)


def test_the_page_shows_the_commands(page):
    assert "cwrnn reproduce generation --out here" in page.preformatted[""]
    assert "cwrnn report DIR" in page.preformatted[""]
    assert "This command made the store" in page.text


def test_the_page_explains_how_the_bits_of_a_code_are_counted(page):
    assert 2**CODE == 256
    assert OVERHEAD == 2 * 32
    assert "256 evenly spaced levels" in page.text
    assert "the offset and the scale\nof the levels are counted, 32 bits each" in page.text


def test_the_page_of_an_empty_store_says_so(tmp_path):
    with fill_store(tmp_path, [], {}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "This store has no runs yet." in page.text
    assert "svg" not in page.tags
    assert json.loads((tmp_path / "summary.json").read_text()).keys() == {
        "commands",
        "created",
        "environments",
        "damaged",
    }


def searching(nmse=0.2, **options):
    return make_record(nmse, task="search", **options)


def test_a_search_alone_has_no_table_of_errors(tmp_path):
    records = [searching(0.1 * (1 + seed), seed=seed, learning_rate=1e-4) for seed in range(3)]
    records += [searching(learning_rate=1e-3, seed=seed, status="diverged") for seed in range(2)]
    records += [searching(learning_rate=1e-2, status="failed", traceback="Error: none")]
    with fill_store(tmp_path, records, {"tune": make_dataset()}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "A search of the learning rate trained 6 networks: 3 finished, 2 diverged and 1 failed." in page.text
    for wrong in ("no runs", "No runs", "nothing to draw", "in the table above"):
        assert wrong not in page.text
    assert "2 runs of the search of the learning rate." in page.text
    names = {"generation-table", "generation-figures"}
    assert not {*names, *(f"#{name}" for name in names)} & {*page.ids, *page.links}
    assert page.tags.count("svg") == 1
    assert "learning rate 0.001, epochs 6" in page.text
    numbers = json.loads((tmp_path / "summary.json").read_text())["generation"]
    assert numbers["counts"] == {"finished": 0, "diverged": 0, "failed": 0}
    assert numbers["search_counts"] == {"finished": 3, "diverged": 2, "failed": 1}
    assert numbers["seconds"] == 3.0


def test_diverged_runs_of_table_and_search_are_counted_apart(tmp_path):
    records = [make_record(0.4, status="diverged"), *(searching(seed=seed, status="diverged") for seed in range(2))]
    with fill_store(tmp_path, records, {"tune": make_dataset()}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "3 runs, 1 counted in the table above and 2 of the search of the learning rate." in page.text
    assert {"generation-table", "generation-figures"} <= set(page.ids)


def test_a_search_shows_one_set_of_hyper_parameters(tmp_path):
    """The search shows the runs with the most frequent hyper-parameters, apart from the learning rate."""
    records = [searching(0.3, method="lstm", seed=s, learning_rate=r) for r in (1e-4, 1e-3) for s in range(2)]
    records += [searching(0.01, method="lstm", learning_rate=1e-3, peepholes=False)]
    records += [searching(0.01, method="lstm", seed=s, learning_rate=1e-3, epochs=9) for s in range(2)]
    with fill_store(tmp_path, records, {"tune": make_dataset()}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    found = json.loads((tmp_path / "summary.json").read_text())["generation"]["search"]
    assert [(each["rate"], each["runs"], each["median"], each["best"]) for each in found] == [
        (1e-4, 2, 0.3, True), (1e-3, 2, 0.3, False)
    ]  # fmt: skip
    assert "3 runs of the search with\nothers are not shown" in page.text
    assert "trained 7 networks" in page.text


def test_a_page_can_have_many_methods(tmp_path):
    methods = ("srn", "lstm", "cw", "leaky", "delays", "narx", "temporal-kernel")
    records = [make_record(0.5, method=method, hidden=4) for method in methods]
    with fill_store(tmp_path, records, {"tune": make_dataset()}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "What 7 kinds of network make of" in page.text


def test_every_command_is_on_the_page(tmp_path):
    data = {"tune": make_dataset()}
    fill_store(tmp_path, [make_record(0.5)], data, command="cwrnn one").close()
    with fill_store(tmp_path, [make_record(0.5, seed=1)], data, command="cwrnn two --resume") as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert page.preformatted[""].startswith("cwrnn onecwrnn two --resume")
    assert "each of the others added runs" in page.text
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["commands"] == ["cwrnn one", "cwrnn two --resume"]


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_page_without_finished_runs_says_so(tmp_path, status):
    data = {"tune": make_dataset()}
    with fill_store(tmp_path, [make_record(0.5, status=status, traceback="Error: none")], data) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "No run has finished yet" in page.text
    assert page.tags.count("svg") == 2
    assert not page.sounds


def test_figures_of_an_earlier_page_are_removed(tmp_path):
    mine = tmp_path / "figures" / "generation" / "mine.png"
    stale = [mine.with_name("search.png"), tmp_path / "figures" / "words" / "confusion.svg"]
    for path in (mine, *stale):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with fill_store(tmp_path, [], {}) as store:
        write_store_report(store, tmp_path)
    assert list((tmp_path / "figures").rglob("*.*")) == [mine]


@pytest.mark.usefixtures("undrawn")
def test_other_hyper_parameters_are_in_the_table_only(tmp_path):
    data = {"tune": make_dataset()}
    records = [make_record(0.5, method="lstm", seed=seed) for seed in range(3)]
    records += [make_record(0.001, method="lstm", seed=seed, peepholes=False) for seed in range(2)]
    with fill_store(tmp_path, records, data) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "2 runs with" in page.text
    assert "with peepholes" in page.text
    assert "no peepholes" in page.text
    numbers = json.loads((tmp_path / "summary.json").read_text())["generation"]
    assert len(numbers["rows"]) == 2
    assert {point["best"] for point in numbers["compression"] if point["bits"] == 32} == {0.5}


def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with (
        fill_store(tmp_path, [], {}) as store,
        pytest.raises(ImportError, match=r"the report needs jinja2: .*experiments"),
    ):
        write_store_report(store, tmp_path)


def test_the_page_begins_with_its_picture(page):
    heads = [page.text.index(head) for head in ("reproduced", "kinds of network", "In short", "Beside the paper")]
    assert heads == sorted(heads)
    assert page.ids.index("opening") < page.ids.index("overview") < page.ids.index("generation")


def test_the_opening_has_the_piece_of_middle_difficulty():
    def cell(name, median, method="cw"):
        return {"method": method, "data": name, "median": median}

    cells = [cell("hard", 0.9), cell("middle", 0.5), cell("easy", 0.1), cell("other", 0.2, "srn")]
    assert choose_opening(cells) == "middle"
    assert choose_opening([cell("never", float("nan")), cells[-1]]) == "other"
    assert choose_opening([cell("never", float("nan"))]) is None


def test_bundled_snippets_have_readable_names(tmp_path):
    data = {name: make_dataset(name) for name in ("bundle1_sectoid_chaosland", "bundle2_sectoid_chaosland")}
    records = [make_record(0.1 * (1 + seed), seed=seed, data=each) for each in data.values() for seed in range(2)]
    records += [make_record(0.1, seed=7, status="diverged", data=each) for each in data.values()]
    with fill_store(tmp_path, records, data) as store:
        written = write_store_report(store, tmp_path)
        assert set(store.datasets()) == set(data)
    page = Page(written.page.read_text())
    assert "snippet 2" in page.text
    assert "chaosland" not in page.text
    assert {dataset["name"] for dataset in written.numbers["generation"]["datasets"]} == set(data)


def test_folders_of_this_machine_are_nowhere(tmp_path):
    folder = "/home/me/secret place"
    data = {"tune": dataclasses.replace(make_dataset(), source=f"{folder}/tune.wav, from 3 s on")}
    traceback = f'Traceback:\n  File "{folder}/x.py", line 1\nOSError: {folder}/tune.wav'
    records = [make_record(0.1, data=data["tune"]), make_record(0.1, seed=1, status="failed", traceback=traceback)]
    command = f"cwrnn reproduce generation --data '{folder}/tune.wav' --out=/var/tmp/out"
    with fill_store(tmp_path, records, data, command=command) as store:
        written = write_store_report(store, tmp_path)
        assert store.command == command
    for path in (written.page, written.summary):
        text = path.read_text()
        for part in ("/home", "secret", "/var", str(tmp_path)):
            assert part not in text
        assert "…/tune.wav" in text
    assert written.numbers["commands"] == ["cwrnn reproduce generation --data …/tune.wav --out=…/out"]


def test_a_report_is_written_from_python(folder, tmp_path):
    seen = []
    written = write_report(folder, out=tmp_path / "elsewhere", progress=seen.append)
    assert [(step.done, step.total) for step in seen] == [(done, 6) for done in range(1, 7)]
    assert written.page == tmp_path / "elsewhere" / "index.html"
    assert str(written) == f"The page is {written.page}"
    assert written.to_dict() == json.loads(written.summary.read_text())
    assert written.figures["generation"].keys() == list_figure_titles()["generation"].keys() - {"cells"}
    for svg, png in written.figures["generation"].values():
        assert svg.read_bytes().startswith(b"<?xml")
        assert png.read_bytes().startswith(b"\x89PNG")
    assert cwrnn.experiments.write_report is write_report


def test_a_report_needs_runs(tmp_path):
    fill_store(tmp_path, [], {}).close()
    with pytest.raises(ExperimentError, match="there are no runs yet"):
        write_report(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_a_full_disk_leaves_the_old_report(tmp_path, monkeypatch):
    with fill_store(tmp_path, [make_record(0.5)], {"tune": make_dataset()}) as store:
        write_store_report(store, tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        store.add(make_record(0.1, seed=1))
        before[store.path] = store.path.read_bytes()
        synchronise, synchronised = os.fsync, []

        def fail_at_last(descriptor):
            synchronised.append(descriptor)
            if len(synchronised) == len(before) - 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            synchronise(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail_at_last)
            with pytest.raises(OSError, match="No space left"):
                write_store_report(store, tmp_path)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        write_store_report(store, tmp_path)
    assert (tmp_path / "index.html").read_bytes() != before[tmp_path / "index.html"]
