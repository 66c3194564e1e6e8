"""The section about gated cells: the paper's methods beside LSTMs and GRUs with clocks and without."""

import json

import pytest
from support.html_pages import Page, fill_store
from support.made_records import make_corpus, make_dataset, make_record, make_words_record

from cwrnn.experiments import paper
from cwrnn.experiments.generation import claims as generation_claims
from cwrnn.experiments.networks.methods import METHODS, find_method
from cwrnn.experiments.report.figures import clock_pairs
from cwrnn.experiments.report.gated import make_section
from cwrnn.experiments.report.page import write_store_report
from cwrnn.experiments.report.statistics import summarise

ERRORS = {"srn": 0.9, "lstm": 0.4, "cw": 0.1, "gru": 0.8, "cw-lstm": 0.04, "cw-gru": 0.2}


def make_records(methods=METHODS):
    return [make_record(ERRORS[method], method=method, size=size, seed=seed)
            for method in methods for size in (100, 200) for seed in (0, 1)]  # fmt: skip


def make_words_records(methods=METHODS):
    return [make_words_record(ERRORS[method] / 2, method=method, seed=seed) for method in methods for seed in (0, 1)]


def write_page(folder, records):
    with fill_store(folder, records, {"tune": make_dataset(), "said": make_corpus()}) as store:
        write_store_report(store, folder)
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    return page, json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def test_the_section_stands_beside_the_papers_methods(tmp_path):
    page, numbers = write_page(tmp_path, [*make_records(), *make_words_records()])
    assert {"generation-gated", "words-gated"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "What clocks do for gated cells" in page.text
    assert "with clocks the median NMSE is 0.040 (CW-LSTM), without 0.40 (LSTM): 10 times better" in page.text
    assert "with clocks the mean error is 10.0 % (CW-GRU), without 40.0 % (GRU)" in page.text.replace("\u00a0", " ")
    for task in ("generation", "words"):
        assert {path.stem for path in (tmp_path / "figures" / task).iterdir()} >= {"cells", "errors"}
        assert {row["method"] for row in numbers[task]["rows"]} == set(METHODS)
        assert len(numbers[task]["gated"]["sentences"]) == 4


def test_the_papers_claims_are_about_its_methods_only(tmp_path):
    """The page judges the same claims, with the same words, as without the other methods."""
    records = make_records()
    for rows in (summarise(records), summarise(make_records(paper.METHODS))):
        judged = generation_claims.judge_claims(rows)
        assert judged == generation_claims.judge_claims(summarise(make_records(paper.METHODS)))
    sentence = generation_claims.describe_winner(summarise(records))
    assert sentence.startswith("Of the paper's methods, CW-RNN comes closest to the music")
    summary = " ".join(generation_claims.describe_runs(records, summarise(records)))
    assert "From best to worst: CW-RNN, LSTM and SRN. The paper has the same order." in summary
    assert "CW-GRU 0.20" in summary


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("methods", [("cw-lstm",), ("gru", "cw-gru"), ("lstm", "cw-lstm")], ids=",".join)
def test_some_methods_make_a_page(tmp_path, methods):
    page, numbers = write_page(tmp_path, [*make_records(methods), *make_words_records(methods)])
    assert {"generation-gated", "words-gated", "generation-errors", "generation-outputs"} <= set(page.ids)
    pairs = sum({find_method(cell, has_clocks=clocks) for clocks in (False, True)} <= set(methods)
                for cell in ("lstm", "gru"))  # fmt: skip
    assert len(numbers["generation"]["gated"]["sentences"]) == pairs + 1
    assert (numbers["generation"]["claims"] == []) == ("lstm" not in methods)


@pytest.mark.usefixtures("undrawn")
def test_the_papers_methods_alone_have_no_such_section(tmp_path):
    records = make_records(paper.METHODS)
    assert make_section(records, summarise(records), generation_claims.compare_clocks) is None
    page, numbers = write_page(tmp_path, records)
    assert "generation-gated" not in page.ids
    assert numbers["generation"]["gated"] is None


def test_each_cell_has_a_column_with_clocks_below():
    figure = clock_pairs(make_records())
    titles = [panel.get_title("left") for panel in figure.axes]
    assert titles == ["SRN", "LSTM", "GRU", "CW-RNN", "CW-LSTM", "CW-GRU"]
    limits = {panel.get_ylim() for panel in figure.axes}
    assert len(limits) == 1
    # without an SRN, the other panels stay where they are
    assert [panel.get_title("left") for panel in clock_pairs(make_records(["cw", "gru"])).axes] == ["GRU", "CW-RNN"]
