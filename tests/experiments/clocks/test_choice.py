"""The choice of a series by validation: the test set has no part in it, and every draw chooses for itself."""

import json

import numpy as np
import pytest
from support.made_corpora import make_pool

from cwrnn.experiments import choose_clocks
from cwrnn.experiments.clocks import choice
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.words.draws import draw_corpora, hold_out

QUICK = {"draws": 3, "size": 400, "modules": 3, "runs": 2, "epochs": 3, "workers": 1}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    out = tmp_path_factory.mktemp("choice")
    pool = make_pool()
    return pool, choose_clocks(pool, beside=["srn"], out=out, command="cwrnn clocks choose", **QUICK)


def test_validation_holds_out_training_speakers_and_no_others():
    for corpus in draw_corpora(make_pool(), 3):
        held = hold_out(corpus, 2)
        spoken = {(each.word, each.speaker) for each in corpus.train}
        judges = {(each.word, each.speaker) for each in held.test}
        assert {(each.word, each.speaker) for each in held.utterances} == spoken
        assert sorted(word for word, _ in judges) == ["a", "a", "b", "b", "c", "c"]
        assert not judges & {(each.word, each.speaker) for each in corpus.test}
        assert not judges & {(each.word, each.speaker) for each in held.train}
        assert held.name == f"{corpus.name}, validation 2"


@pytest.mark.parametrize("validation", [0, -1, 5, 99])
def test_a_validation_that_leaves_nobody_is_refused(validation):
    with pytest.raises(ArgumentError, match="validation: expected at (least 1|most 4), got"):
        choose_clocks(make_pool(), validation=validation, **QUICK)


def test_each_draw_chooses_the_series_with_the_lowest_validation_error(chosen):
    _, result = chosen
    assert [row.method for row in result.validation] == ["exponential-2", "exponential-3", "exponential-4"]
    for draw, name in result.chosen.items():
        errors = [row.means[draw] for row in result.validation]
        assert name == result.validation[int(np.argmin(errors))].method
    rows = {row.method: row for row in result.test.rows}
    assert list(rows) == ["srn", "exponential-2", "chosen"]
    for draw, name in result.chosen.items():
        if name == "exponential-2":
            assert rows["chosen"].means[draw] == rows["exponential-2"].means[draw]


def test_the_test_errors_are_those_of_networks_that_learned_all_training_speakers(chosen):
    pool, result = chosen
    corpora = {corpus.name: corpus for corpus in draw_corpora(pool, 3)}
    row = next(row for row in result.test.rows if row.method == "chosen")
    with Store.read(result.store) as store:
        records = store.records("clocks words")
        for name, corpus in corpora.items():
            schedule = result.schedules[result.chosen[corpus.draw]]
            errors = [each.error for each in records if each.run.data == name and each.schedule == schedule]
            assert len(errors) == 2
            assert row.means[corpus.draw] == pytest.approx(np.mean(errors))
        # SRNs have the keys of `reproduce words`
        assert {each.run.data for each in store.records("words")} == set(corpora)


def test_the_choice_does_not_depend_on_the_test_set(chosen):
    pool, result = chosen
    seen = {(each.word, each.speaker) for corpus in draw_corpora(pool, 3)[:1] for each in corpus.train}
    assert len(seen) == 15
    with Store.read(result.store) as store:
        for name, corpus in store.corpora().items():
            if name == "pool, draw 0, validation 1":
                assert {(each.word, each.speaker) for each in corpus.utterances} == seen


def test_the_result_is_printed_and_can_be_resumed(chosen):
    pool, result = chosen
    text = str(result)
    assert "The choice by validation" in text
    assert "Errors over 3 draws of the speakers" in text
    numbers = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert numbers["chosen"].keys() == {"0", "1", "2"}
    calls = []
    again = choose_clocks(pool, beside=["srn"], out=result.store.parent, resume=True, progress=calls.append, **QUICK)
    assert all(call.done == call.total for call in calls)
    assert again.chosen == result.chosen


def test_a_series_whose_runs_all_failed_is_not_chosen():
    rows = [
        choice.make_row("a", 1, {1: [0.1], 2: [0.5]}),
        choice.make_row("b", 1, {0: [0.9], 1: [0.1], 2: [0.3, 0.4]}),
    ]
    assert choice._choose(rows, draw_corpora(make_pool(), 3)) == {0: "b", 1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"series": ["exponential-5"]}, "series: expected some of .*, got 'exponential-5'"),
        ({"beside": ["cw"]}, "beside: expected some of srn, lstm, gru, cw-lstm, cw-gru, got 'cw'"),
        ({"draws": 0}, "draws: expected at least 1, got 0"),
        ({"size": 3}, "size: expected at least"),
    ],
)
def test_bad_requests_are_refused(asked, message):
    with pytest.raises(ArgumentError, match=message):
        choose_clocks(make_pool(), **{**QUICK, **asked})
