"""The chapter of spoken words is safe for any word, and shares a page with the chapter of generation."""

import contextlib
import dataclasses
import io
import json
import re

import pytest
from support.html_pages import HOSTILE, Page, fill_store
from support.made_records import (
    WORDS,
    make_corpus,
    make_dataset,
    make_record,
    make_words_record,
    make_words_run,
    train_words_runs,
)

from cwrnn.experiments.report.page import list_figure_titles, write_store_report
from cwrnn.experiments.report.statistics import summarise
from cwrnn.experiments.reproduction_result import TaskReproduction
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.task import find_task
from cwrnn.experiments.words import figures

METHODS = ("srn", "lstm", "cw")


@pytest.fixture(scope="module")
def corpus():
    return dataclasses.replace(make_corpus(HOSTILE), source=f"synthetic: by {HOSTILE}")


@pytest.fixture(scope="module")
def records(corpus):
    runs = [make_words_run(method, 500, seed, corpus, learning_rate=0.01) for method in METHODS for seed in (0, 1)]
    found = train_words_runs(*runs, corpus=corpus)
    found += [make_words_record(0.4, method="srn", seed=7, status="diverged", corpus=corpus, learning_rate=0.01)]
    found += [
        make_words_record(
            0.4, seed=8, status="failed", corpus=corpus, learning_rate=0.01, traceback=f"Trace\nError: {HOSTILE}"
        )
    ]
    # the better rate has the worse test error
    found += [
        make_words_record(
            error, method=method, task="words search", corpus=corpus, learning_rate=rate, cross_entropy=entropy
        )
        for method in METHODS
        for rate, error, entropy in ((1e-4, 0.2, 0.75), (3e-4, 0.6, 0.25))
    ]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory, records, corpus):
    """A store of both tasks."""
    folder = tmp_path_factory.mktemp("words")
    music = [make_record(0.1 * (1 + seed), seed=seed) for seed in range(2)]
    with fill_store(
        folder, [*records, *music], {"corpus": corpus, "tune": make_dataset()}, command="cwrnn reproduce"
    ) as store:
        write_store_report(store, folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_one_page_of_both_tasks(page, folder):
    assert {"generation", "words", "generation-errors", "words-errors", "words-confusion", "words-modules"} <= {
        *page.ids
    }
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert [link for link in page.links if not link.startswith(("#", "data:"))] == []
    assert "repeats both experiments" in page.text
    assert "<title>Clockwork RNN: music from memory and spoken words</title>" in (folder / "index.html").read_text()
    for task, titles in [(task, list_figure_titles()[task]) for task in ("generation", "words")]:
        names = {path.stem for path in (folder / "figures" / task).iterdir()}
        assert names == titles.keys() - {"cells", "draws"} - ({"search"} if task == "generation" else set())
    numbers = json.loads((folder / "summary.json").read_text())
    assert numbers.keys() == {"commands", "created", "environments", "damaged", "generation", "words"}
    assert numbers["environments"][0]["runs"] == 16


def test_the_same_store_makes_the_same_bytes(folder, tmp_path):
    with Store.read(folder) as store:
        write_store_report(store, tmp_path)
    for path in [folder / "index.html", folder / "summary.json", *(folder / "figures").rglob("*.*")]:
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_the_summary_has_the_numbers_of_the_records(folder, records, corpus):
    numbers = json.loads((folder / "summary.json").read_text())["words"]
    assert numbers["counts"] == {"finished": 6, "diverged": 1, "failed": 1}
    assert numbers["search_counts"] == {"finished": 6, "diverged": 0, "failed": 0}
    mine = [record for record in records if record.run.task == "words"]
    assert [(row["method"], row["mean"]) for row in numbers["rows"]] == [
        (row.method, pytest.approx(row.mean)) for row in summarise(mine)
    ]
    for found in numbers["confusion"]:
        best = figures.best_finished(mine, found["method"])
        assert found["error"] == best.error
        assert found["clusters"] == figures.group_by_cluster(figures.count_answers(best, corpus), corpus).tolist()
    assert [(each["best"], each["choice"]) for each in numbers["search"]] == [(False, 0.75), (True, 0.25)] * 3
    assert numbers["corpora"][0]["words"] == list(WORDS)


def test_a_search_chooses_by_the_training_set(page, records, corpus):
    assert "The best rate is that with the lowest median training cross entropy" in page.text
    search = tuple(record for record in records if record.run.task == "words search")
    table = TaskReproduction(find_task("words"), (corpus,), search, 1, is_search=True)
    assert set(table.best_learning_rates.values()) == {3e-4}
    rows = [line for line in str(table).splitlines() if re.match(r"SRN|LSTM|CW-RNN", line)]
    assert [row.split()[4] for row in rows] == ["0.75", "0.25"] * 3
    assert [row.count("*") for row in rows] == [0, 2] * 3
    assert "lowest median training cross entropy" in " ".join(str(table).split())


def test_synthetic_speech_is_called_synthetic(page, tmp_path):
    for part in (
        "5 words of synthetic speech",
        "These words are synthetic: no person spoke them",
        "The words are synthetic",
    ):
        assert part in page.text
    corpus = make_corpus("people", synthetic=False)
    with fill_store(tmp_path, [make_words_record(0.2, corpus=corpus)], {"people": corpus}) as store:
        other = Page(write_store_report(store, tmp_path).page.read_text())
    assert "synthetic" not in other.text
    assert "one of the two experiments" in other.text
    assert "generation" not in other.ids


def test_names_of_users_are_never_executed(page):
    assert HOSTILE in page.text
    assert f"Error: {HOSTILE}" in page.text
    assert "script" not in page.tags


def test_the_page_shows_errors_and_unfinished_runs(page, records):
    for row in summarise(record for record in records if record.run.task == "words"):
        assert f"{100 * row.mean:.1f} ± {100 * row.std:.1f} %" in page.text
    assert "1 run, counted in the table above. The store keeps" in page.text
    assert "1 run: Error:" in page.text


def test_a_single_run_can_be_repeated_as_the_page_says(page, folder):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(page.preformatted["words-again"].replace("DIR", str(folder)), {})
    before, after = printed.getvalue().split()
    assert float(before) == float(after)


def test_the_figures_are_about_the_words_that_most_runs_learn(tmp_path):
    most, others = make_corpus("most"), make_corpus("others")
    records = [make_words_record(0.2, seed=seed, corpus=most) for seed in range(3)]
    records += [make_words_record(0.8, seed=seed, corpus=others) for seed in range(2)]
    with fill_store(tmp_path, records, {"others": others, "most": most}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    numbers = json.loads((tmp_path / "summary.json").read_text())["words"]
    assert numbers["data"] == "most"
    assert [row["runs"] for row in numbers["rows"]] == [3]
    assert [row["runs"] for row in numbers["other_rows"]["others"]] == [2]
    assert "80.0 ± 0.0 %" in page.text
    assert "The same on other words" in page.text


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_page_without_finished_runs_says_so(tmp_path, status):
    with fill_store(
        tmp_path, [make_words_record(0.4, status=status, traceback="Error: none")], {"said": make_corpus()}
    ) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "No run has finished yet" in page.text
    assert page.tags.count("svg") == 1


def test_a_search_alone_has_no_table_of_errors(tmp_path):
    records = [make_words_record(0.2, seed=seed, task="words search", learning_rate=1e-3) for seed in range(2)]
    with fill_store(tmp_path, records, {"said": make_corpus()}) as store:
        page = Page(write_store_report(store, tmp_path).page.read_text())
    assert "A search of the learning rate trained 2 networks: 2 finished, 0 diverged and 0 failed." in page.text
    assert not {"words-table", "words-figures"} & set(page.ids)
    assert page.tags.count("svg") == 1
