"""The page: whole in itself, safe whatever a data set is called, the same for the same store, and true."""

import base64
import contextlib
import io
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from support.made_records import dataset, run, told, trained

from cwrnn.experiments.generation import chapter as generation_chapter
from cwrnn.experiments.generation import claims as generation_findings
from cwrnn.experiments.generation.weight_coding import CODE, OVERHEAD, Baseline, Point
from cwrnn.experiments.report import drawing
from cwrnn.experiments.report import page as report
from cwrnn.experiments.report import statistics as outcomes
from cwrnn.experiments.report.statistics import summarise
from cwrnn.experiments.sweep.store import Store

METHODS = ("srn", "lstm", "cw")
HOSTILE = '<script>alert("1")</script> & \' $x_{ </pre> {{ 7 * 7 }} -->'


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.sounds: list[str] = []
        self.text = ""
        self.preformatted: dict[str, str] = {}
        self.styles = ""
        self._open: list[str] = []
        self._name = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.links += [values[name] for name in ("src", "href", "xlink:href", "action", "data") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.styles += values.get("style") or ""
        assert not any(name.startswith("on") for name in values)
        if tag == "audio":
            self.sounds.append(values["src"])
        self._open.append(tag)
        self._name = values.get("id", "") if tag == "pre" else self._name

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        if "style" in self._open:
            self.styles += data
        else:
            self.text += data
        if "pre" in self._open:
            self.preformatted[self._name] = self.preformatted.get(self._name, "") + data


@pytest.fixture(scope="module")
def data():
    return {name: dataset(name, seed=seed) for seed, name in enumerate(["first", HOSTILE])}


@pytest.fixture(scope="module")
def records(data):
    """Trained for a few epochs, and some that diverged or failed."""
    found = []
    for each in data.values():
        runs = [run(method, size, seed, each) for method in METHODS for size in (100, 200) for seed in (0, 1)]
        found += trained(*runs, data=each)
    first = data["first"]
    found += [told(0.4, method="srn", seed=7, status="diverged", data=first)]
    found += [
        told(0.4, method="cw", seed=s, status="failed", data=first, traceback=f"Trace\nError: {HOSTILE}")
        for s in (8, 9)
    ]
    for rate in (1e-4, 1e-3):
        found += trained(
            *(run(method, task="search", data=first, learning_rate=rate) for method in METHODS), data=first
        )
    return found


def fill(folder, records, data, command="cwrnn reproduce generation --out here"):
    folder.mkdir(exist_ok=True)
    store = Store.open(folder, create=True, command=command)
    for each in data.values():
        store.add_dataset(each)
    store.add(*records)
    return store


@pytest.fixture(scope="module")
def folder(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("report")
    with fill(folder, records, data) as store:
        assert report.write(store, folder) == folder / "index.html"
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_whole_in_itself(page, folder):
    assert page.links
    assert [link for link in page.links if not link.startswith(("#", "data:"))] == []
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    # no font or picture from elsewhere
    assert set(re.findall(r"url\((.)", page.styles)) <= {"#"}
    assert "@import" not in page.styles
    assert page.tags.count("svg") == 6
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", (folder / "index.html").read_text(encoding="utf-8")))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_nothing_that_a_user_named_is_executed(page):
    assert HOSTILE in page.text
    assert f"Error: {HOSTILE}" in page.text
    assert "script" not in page.tags


def test_sounds_are_the_outputs(page, records, data):
    soundfile = pytest.importorskip("soundfile")
    expected = []
    for name, each in data.items():
        expected.append(each.samples)
        for method in METHODS:
            mine = [r for r in records if (r.run.task, r.run.data, r.run.method) == ("generation", name, method)]
            expected.append(outcomes.best(mine).output)
    assert len(page.sounds) == len(expected) == 8
    for uri, samples in zip(page.sounds, expected, strict=True):
        assert uri.startswith("data:audio/wav;base64,")
        heard, rate = soundfile.read(io.BytesIO(base64.b64decode(uri.split(",")[1])))
        assert rate == 8000
        assert len(heard) / rate == pytest.approx(1, abs=0.01)
        # at half of full scale, and again and again
        np.testing.assert_allclose(heard.reshape(-1, 48), np.tile(samples / 2, (len(heard) // 48, 1)), atol=1e-4)


def test_sound_beyond_full_scale_is_cut_off():
    soundfile = pytest.importorskip("soundfile")
    heard, _ = soundfile.read(io.BytesIO(generation_chapter.sound(np.array([3.0, -3.0, 0.5]), 8000)))
    np.testing.assert_allclose(heard[:3], [1, -1, 0.25], atol=1e-4)
    assert len(soundfile.read(io.BytesIO(generation_chapter.sound(np.zeros(20000), 8000)))[0]) == 20000


def test_figures_lie_beside_the_page(folder):
    names = sorted(path.name for path in (folder / "figures" / "generation").iterdir())
    assert names == sorted(f"{name}.{suffix}" for name in report.TITLES["generation"] for suffix in ("svg", "png"))
    for path in (folder / "figures").rglob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_drawings_take_the_colours_of_the_page(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    for each in drawings:
        for colour, variable in report.VARIABLES.items():
            assert colour not in each
            assert f"{variable}:" in text
        assert "var(--ink)" in each
    assert sum("var(--cw)" in each for each in drawings) == 6
    assert "prefers-color-scheme: dark" in text


def test_the_same_store_makes_the_same_bytes(folder, tmp_path):
    with Store.read(folder) as store:
        report.write(store, tmp_path)
    for path in [folder / "index.html", folder / "summary.json", *(folder / "figures").rglob("*.*")]:
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_summary(folder, records):
    text = (folder / "summary.json").read_text(encoding="utf-8")
    assert len(text) < 50_000

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    whole = json.loads(text, parse_constant=refuse)
    assert whole.keys() == {"commands", "created", "environments", "generation"}
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
        assert f"{drawing.short(row.mean)} ± {drawing.short(row.std)}" in page.text
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


def test_commands_are_named(page):
    assert "cwrnn reproduce generation --out here" in page.preformatted[""]
    assert "cwrnn report DIR" in page.preformatted[""]
    assert "as this store was begun" in page.text


def test_what_a_code_costs_is_said_as_it_is_counted(page):
    assert 2**CODE == 256
    assert OVERHEAD == 2 * 32
    assert "256 evenly spaced levels" in page.text
    assert "the offset and the scale that place them\nare counted, 32 bits each" in page.text


def test_empty_store(tmp_path):
    with fill(tmp_path, [], {}) as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert "There are no runs in this store yet." in page.text
    assert "svg" not in page.tags
    assert json.loads((tmp_path / "summary.json").read_text()).keys() == {"commands", "created", "environments"}


def searching(nmse=0.2, **options):
    return told(nmse, task="search", **options)


def test_search_alone(tmp_path):
    records = [searching(0.1 * (1 + seed), seed=seed, learning_rate=1e-4) for seed in range(3)]
    records += [searching(learning_rate=1e-3, seed=seed, status="diverged") for seed in range(2)]
    records += [searching(learning_rate=1e-2, status="failed", traceback="Error: none")]
    with fill(tmp_path, records, {"tune": dataset()}) as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert "6 trainings to search the learning rate: 3 finished, 2 diverged and 1 failed." in page.text
    for wrong in ("no runs", "No runs", "Nothing to draw", "in the table above"):
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


def test_diverged_runs_of_table_and_search(tmp_path):
    records = [told(0.4, status="diverged"), *(searching(seed=seed, status="diverged") for seed in range(2))]
    with fill(tmp_path, records, {"tune": dataset()}) as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert "3 runs, 1 counted in the table above and 2 of the search of the learning rate." in page.text
    assert {"generation-table", "generation-figures"} <= set(page.ids)


def test_a_search_is_of_one_set_of_hyper_parameters(tmp_path):
    """All but the learning rate; those of most runs."""
    records = [searching(0.3, method="lstm", seed=s, learning_rate=r) for r in (1e-4, 1e-3) for s in range(2)]
    records += [searching(0.01, method="lstm", learning_rate=1e-3, peepholes=False)]
    records += [searching(0.01, method="lstm", seed=s, learning_rate=1e-3, epochs=9) for s in range(2)]
    with fill(tmp_path, records, {"tune": dataset()}) as store:
        page = Page(report.write(store, tmp_path).read_text())
    found = json.loads((tmp_path / "summary.json").read_text())["generation"]["search"]
    assert [(each["rate"], each["runs"], each["median"], each["best"]) for each in found] == [
        (1e-4, 2, 0.3, True), (1e-3, 2, 0.3, False)
    ]  # fmt: skip
    assert "3 runs of the search with\nothers are not shown" in page.text
    assert "7 trainings" in page.text


def test_every_command_is_on_the_page(tmp_path):
    data = {"tune": dataset()}
    fill(tmp_path, [told(0.5)], data, command="cwrnn one").close()
    with fill(tmp_path, [told(0.5, seed=1)], data, command="cwrnn two --resume") as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert page.preformatted[""].startswith("cwrnn onecwrnn two --resume")
    assert "each of the others added runs to it" in page.text
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["commands"] == ["cwrnn one", "cwrnn two --resume"]


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_no_run_finished(tmp_path, status):
    data = {"tune": dataset()}
    with fill(tmp_path, [told(0.5, status=status, traceback="Error: none")], data) as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert "No run has finished yet" in page.text
    assert page.tags.count("svg") == 2
    assert not page.sounds


def test_figures_of_an_earlier_page_go(tmp_path):
    mine = tmp_path / "figures" / "generation" / "mine.png"
    stale = [mine.with_name("search.png"), tmp_path / "figures" / "words" / "confusion.svg"]
    for path in (mine, *stale):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with fill(tmp_path, [], {}) as store:
        report.write(store, tmp_path)
    assert list((tmp_path / "figures").rglob("*.*")) == [mine]


def test_other_hyper_parameters_are_in_the_table_only(tmp_path):
    data = {"tune": dataset()}
    records = [told(0.5, method="lstm", seed=seed) for seed in range(3)]
    records += [told(0.001, method="lstm", seed=seed, peepholes=False) for seed in range(2)]
    with fill(tmp_path, records, data) as store:
        page = Page(report.write(store, tmp_path).read_text())
    assert "2 runs with" in page.text
    assert "with peepholes" in page.text
    assert "no peepholes" in page.text
    numbers = json.loads((tmp_path / "summary.json").read_text())["generation"]
    assert len(numbers["rows"]) == 2
    assert {point["best"] for point in numbers["compression"] if point["bits"] == 32} == {0.5}


def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with fill(tmp_path, [], {}) as store, pytest.raises(ImportError, match=r"the report needs jinja2: .*experiments"):
        report.write(store, tmp_path)


def paper_like(**changes):
    """Records whose means are the paper's."""
    means = {("srn", 100): 0.45, ("srn", 1000): 0.46, ("lstm", 100): 0.1, ("lstm", 1000): 0.04, ("cw", 100): 0.1,
             ("cw", 1000): 0.007}  # fmt: skip
    spread = {"srn": 0.08, "lstm": 0.01, "cw": 0.004}
    return [
        told(mean + sign * spread[method], method=method, size=size, hidden=4, seed=seed, epochs=2000,
             **changes.get(method, {}))
        for (method, size), mean in means.items()
        for seed, sign in enumerate([-1, 1] * 50)
    ]  # fmt: skip


def judge(records):
    data = {"tune": dataset()}
    rows = summarise(records)
    return (
        generation_findings.claims(rows),
        generation_findings.reasons(records, rows, data),
        generation_findings.summary(records, rows),
    )


def test_what_agrees_with_the_paper_needs_no_reason():
    claims, reasons, summary = judge(paper_like())
    assert [claim.holds for claim in claims] == [True] * len(claims)
    assert len(claims) == 8
    assert "within the paper's deviation" in claims[0].here
    assert "5.7 times better by the mean" in claims[3].here
    assert reasons == []
    assert "the order of the paper" in summary[-1]
    assert "CW-RNN 0.0070, LSTM 0.040 and SRN 0.46" in summary[1]


def test_what_disagrees_is_said_with_its_reason():
    records = [
        told(0.2, method="cw", size=1000, hidden=4, seed=seed, epochs=300, data=dataset("easy" if seed % 2 else "hard"))
        for seed in range(8)
    ]
    records += [
        told(nmse, method="lstm", size=1000, hidden=4, seed=seed, epochs=300, peepholes=False, learning_rate=1e-3)
        for seed, nmse in enumerate([0.01, 0.01, 0.01, 40.0])
    ]
    records += [told(0.1, method="lstm", size=1000, hidden=4, seed=9, epochs=300, peepholes=False, learning_rate=1e-3,
                     status="diverged")]  # fmt: skip
    claims, reasons, summary = judge(records)
    lstm, cw = claims[:2]
    assert not lstm.holds
    assert "250 times higher" in lstm.here
    assert "29 times higher" in cw.here
    assert "not the order of the paper" in summary[-1]
    text = "\n".join(reasons)
    for part in (
        "on easy and", "300 epochs, the paper's for 2000", "learning rate of LSTM was 0.001; the paper's is 3e-05",
        "no peephole connections", "as few as 5 runs", "LSTM at 1000 (mean 10, median 0.010, 1 run worse",
        "1 of 5", "still falling",
    ):  # fmt: skip
        assert part in text
    assert "learning rate of CW-RNN" not in text


def test_a_word_for_every_run():
    records = [told(0.1), told(0.1, seed=1, status="diverged"), told(0.1, seed=2, status="failed")]
    _, _, summary = judge(records)
    assert summary[0].startswith("3 trainings of CW-RNN on 1 sequence, 6 epochs each: 1 finished, 1 diverged")
    assert math.isclose(outcomes.box(records).mean, 0.1)


def test_the_code_beside_pcm():
    def point(size, bits, rate, best):
        return Point("cw", size, bits, rate, runs=3, best=best, median=2 * best)

    pcm = [Baseline(1, 0.5), Baseline(2, 0.1), Baseline(3, 0.02)]
    large = [point(1000, 32, 40.0, 0.03), point(1000, 8, 12.0, 0.05)]
    lost, beside = generation_findings.coding([point(100, 8, 9.0, 0.4), *large], pcm)
    assert "CW-RNN (1000) from 0.060 to 0.10" in lost
    # 0.05 needs 3 bits: 12 / 3 is less than 9 / 2 for 0.4, and than 40 / 3
    assert beside.startswith("No code here is smaller than plain PCM")
    assert (
        "1000 parameters at 8 bits each: 12.0 bits per sample for an NMSE of 0.050, which PCM reaches with 3" in beside
    )
    [beside] = generation_findings.coding([point(100, 8, 1.5, 0.1)], pcm)
    assert beside.startswith("Some code is smaller than plain PCM")
    [beside] = generation_findings.coding([point(100, 8, 1.5, 0.001)], pcm)
    assert "not even with 3" in beside
    assert generation_findings.coding([], pcm) == []
