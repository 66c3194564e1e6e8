"""Statistics, claims, tables, figures and pages bear any records: zeros, lost runs, one run, one word, one method."""

import json
import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.any_records import HIDDEN, ODD_TEXTS, generation_records, word_records
from support.made_records import make_corpus, make_dataset, make_record, make_words_record

from cwrnn.commands.console import make_error_console, show_progress
from cwrnn.commands.main import main
from cwrnn.experiments.clocks.chapter import make_chapter
from cwrnn.experiments.file_names import replace_undecodable
from cwrnn.experiments.generation import claims as generation_claims
from cwrnn.experiments.generation.chapter import encode_wav
from cwrnn.experiments.generation.task import GENERATION
from cwrnn.experiments.progress import Progress
from cwrnn.experiments.report import claims, statistics
from cwrnn.experiments.report.chapter import list_settings, make_overview, make_search_table, split_by_settings
from cwrnn.experiments.report.drawing import fit_label, new_figure, styled, wrap_label
from cwrnn.experiments.report.numbers import compare_errors, divide, format_error, format_factor, format_percent
from cwrnn.experiments.reproduction_result import Reproduction, TaskReproduction
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.task import all_tasks
from cwrnn.experiments.words import claims as word_claims
from cwrnn.experiments.words.task import WORDS

NUMBERS = st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 1.0, 1e300, math.inf])


def check_sentences(*sentences):
    for sentence in sentences:
        assert isinstance(sentence, str)
        assert "nan" not in sentence.split(), sentence
        assert "inf" not in sentence.split(), sentence


@given(NUMBERS, NUMBERS)
def test_ratios_of_any_errors_can_be_written(first, second):
    check_sentences(format_error(first), format_percent(first), format_factor(divide(first, second)))
    check_sentences(compare_errors(first, second))


@given(generation_records())
@settings(max_examples=40)
def test_sentences_about_any_music_can_be_written(drawn):
    _, records = drawn
    records, _ = split_by_settings(records)
    rows = statistics.summarise(records)
    check_sentences(*generation_claims.describe_runs(records, rows), generation_claims.describe_winner(rows))
    check_sentences(*(claim.here for claim in generation_claims.judge_claims(rows)))
    check_sentences(*generation_claims.explain_failures(records, rows))
    _check_shared(records, rows, GENERATION)


@given(word_records())
@settings(max_examples=40)
def test_sentences_about_any_words_can_be_written(drawn):
    corpus, records = drawn
    records, _ = split_by_settings(records)
    rows = statistics.summarise(records)
    check_sentences(word_claims.describe_winner(rows, corpus))
    for sentence in word_claims.describe_runs(records, rows, corpus):
        check_sentences(sentence.replace(corpus.source, ""))
    check_sentences(*(claim.here for claim in word_claims.judge_claims(rows)))
    check_sentences(*word_claims.explain_failures(records, rows, corpus))
    _check_shared(records, rows, WORDS, (corpus,))


def _check_shared(records, rows, task, data=()):
    check_sentences(claims.describe_search(records))
    make_search_table(records, task.learning_rates)
    list_settings(records)
    make_overview("task", "error", rows, "", lambda mean, deviation: f"{mean} {deviation}", str)
    for record in records:
        statistics.quartile_curve([record])
    for is_search in (False, True):
        table = TaskReproduction(task, data, tuple(records), 1, is_search)
        if not is_search:
            check_sentences(*str(table).split("\n")[4:])
        json.dumps(Reproduction((table,), 0.0).to_dict(), allow_nan=False)


def add_records(folder, data, records):
    with Store.open(folder, create=True) as store:
        for dataset in data:
            store.add_dataset(dataset)
        store.add(*records)


def draw_all(folder):
    """Draw every figure of the page, with layout and ticks but without its picture."""
    with Store.read(folder) as store:
        made = [(task.make_chapter(store), make_chapter(store, task)) for task in all_tasks()]
    for chapter in filter(None, chain.from_iterable(made)):
        for figure in chapter.figures.values():
            styled(figure.draw_without_rendering)()


@given(generation_records(tasks=("generation", "search", "clocks generation")))
@settings(max_examples=3)
def test_figures_of_any_music_can_be_drawn(tmp_path_factory, drawn):
    datasets, records = drawn
    folder = tmp_path_factory.mktemp("music")
    add_records(folder, datasets.values(), records)
    draw_all(folder)


@given(word_records(tasks=("words", "words search", "clocks words")))
@settings(max_examples=3)
def test_figures_of_any_words_can_be_drawn(tmp_path_factory, drawn):
    corpus, records = drawn
    folder = tmp_path_factory.mktemp("words")
    add_records(folder, [corpus], records)
    draw_all(folder)


def test_runs_without_any_error_make_a_page(tmp_path, capsys):
    """Networks that get all words right, and music that is met exactly; all runs of one method are lost."""
    music, words = make_dataset(), make_corpus()
    records = [make_record(0.0, method=method, size=size, data=music, hidden=HIDDEN[method])
               for method in ("lstm", "cw") for size in (100, 1000)]  # fmt: skip
    records += [make_record(math.nan, method="srn", status="diverged", data=music)]
    records += [make_words_record(0.0, method=method, size=size) for method in ("lstm", "cw") for size in (500, 10000)]
    records += [make_words_record(0.0, method="srn", status="failed", traceback="<script>lost</script>")]
    add_records(tmp_path, [music, words], records)
    assert main(["report", str(tmp_path)]) == 0
    numbers = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert numbers["words"]["rows"][-1]["mean"] == 0.0
    assert numbers["generation"]["rows"][0]["mean"] is None
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "without any error" in page
    assert "&lt;script&gt;lost&lt;/script&gt;" in page
    assert "<script" not in page


def test_the_output_of_a_run_that_diverged_can_be_heard():
    broken = np.array([math.nan, math.inf, -math.inf, 3e38, 0.5], dtype=np.float32)
    assert encode_wav(broken, 5)[44:] == np.array([0, 32767, -32768, 32767, 8192], dtype="<i2").tobytes()


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
@pytest.mark.parametrize("label", [lambda text: fit_label(text, 40), wrap_label], ids=["fit", "wrap"])
def test_a_text_of_a_user_is_drawn_as_it_is(text, label):
    figure = new_figure(4, 3)
    panel = figure.subplots()
    panel.plot([0, 1], label=label(text))
    legend = panel.legend()
    panel.set_title(label(text))
    panel.set_xticks([0], [label(text)])
    styled(figure.draw_without_rendering)()
    readable = "".join(letter if letter.isprintable() and letter not in "🙂" else "?" for letter in text)
    for part in (panel.title, *panel.get_xticklabels(), *legend.get_texts()):
        drawn, is_formula = part._preprocess_math(part.get_text())
        assert not is_formula
        assert drawn.replace("\n", "").strip().startswith(readable[:39].strip())


@pytest.mark.parametrize("text", [text for text in ODD_TEXTS if not {"\0", "\t"} & {*text} and text], ids=ascii)
def test_a_text_of_a_user_is_printed_as_it_is(text, capsys):
    make_error_console().print(replace_undecodable(text))
    with show_progress() as report:
        report(Progress(text, 1, 2, 0.5, 1.0))
    assert capsys.readouterr().err.startswith(replace_undecodable(text))
