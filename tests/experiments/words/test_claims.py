"""The claims about spoken words agree with the numbers, whatever the numbers are."""

import dataclasses

import pytest
from support.made_records import make_corpus, make_words_record

from cwrnn.experiments import paper
from cwrnn.experiments.report.statistics import summarise
from cwrnn.experiments.words import claims


def judge(means, runs=2, **options):
    """Returns claims, reasons and sentences about runs with these means and the paper's deviations."""
    spread = {"srn": 0.047, "lstm": 0.056, "cw": 0.035}
    records = [
        make_words_record(mean + sign * spread[method], method=method, size=size, seed=seed, **options)
        for (method, size), mean in means.items()
        for seed, sign in enumerate([-1, 1] * (runs // 2))
    ]
    rows = summarise(records)
    corpus = options.get("corpus") or make_corpus()
    return (
        claims.judge_claims(rows),
        claims.explain_failures(records, rows, corpus),
        claims.describe_runs(records, rows, corpus),
    )


PAPER = {("srn", 500): 0.70, ("lstm", 500): 0.60, ("cw", 500): 0.50,
         ("srn", 10000): 0.668, ("lstm", 10000): 0.342, ("cw", 10000): 0.168}  # fmt: skip


def test_runs_like_the_papers_confirm_every_claim():
    judged, reasons, summary = judge(PAPER)
    assert [claim.holds for claim in judged] == [True] * 7
    assert "within the paper's deviation" in judged[0].here
    assert "At 10000 parameters 2 times better by the mean" in judged[4].here
    assert "20.0 points lower at 500 and 50.0 points lower at 10000 than that of SRNs" in judged[5].here
    assert reasons == []
    assert "CW-RNN 16.8 %, LSTM 34.2 % and SRN 66.8 %; guessing is wrong 80.0 % of the time" in summary[-2]
    assert summary[-1].endswith("The paper has the same order.")


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({("cw", 10000): 0.25}, [2, 4]),
        ({("cw", 500): 0.53}, [5]),
        ({("lstm", 10000): 0.64}, [1, 6]),
        ({("lstm", 10000): 0.15}, [1, 3, 4, 5]),
    ],
)
def test_each_claim_is_judged_by_itself(changes, fails):
    judged, reasons, _ = judge({**PAPER, **changes})
    assert [place for place, claim in enumerate(judged) if not claim.holds] == fails
    assert reasons[0].startswith("The words are synthetic")


def test_reasons_name_what_differs_from_the_paper():
    means = {("lstm", 1000): 0.2, ("cw", 1000): 0.3}
    _, reasons, summary = judge(means, noise=0.3, learning_rate=0.01, epochs_made=4, peepholes=False,
                                corpus=make_corpus("people", synthetic=False))  # fmt: skip
    text = "\n".join(reasons)
    for part in (
        "not the paper's, which are from TIMIT", "largest networks here have 1000 parameters, the paper's 10000",
        "deviation of 0.3, the paper's 0.6", "learning rate of CW-RNN was 0.01; the paper's is 0.0003",
        "no peephole connections", "4 runs stopped at the limit of 4 epochs", "as few as 2 runs",
    ):  # fmt: skip
        assert part in text
    assert summary[-1].endswith("The paper has another order.")
    assert "synthetic" not in text


def test_the_papers_words_are_recognised():
    words = {word: number for number, cluster in enumerate(paper.WORDS_VOCABULARY, start=1) for word in cluster}
    utterances = tuple(
        dataclasses.replace(make_corpus().utterances[place % 3], word=word) for word in words for place in range(3)
    )
    corpus = dataclasses.replace(make_corpus(), utterances=utterances, clusters=words, synthetic=False, name="timit")
    _, reasons, _ = judge({("cw", 500): 0.2, ("lstm", 500): 0.1}, corpus=corpus)
    assert reasons[0] == "The words are the paper's, but the paper does not say which recordings of them it took."


EXTREMES = {
    "no mistakes": dict.fromkeys(PAPER, 0.0),
    "only LSTM makes none": {("srn", 500): 0.5, ("lstm", 500): 0.0, ("cw", 500): 0.2},
    "only CW-RNN makes none": {("lstm", 10000): 0.2, ("cw", 10000): 0.0},
    "all wrong": dict.fromkeys(PAPER, 1.0),
    "one network": {("cw", 500): 0.4},
    "sizes that differ by method": {("srn", 500): 0.4, ("cw", 1000): 0.4},
}


@pytest.mark.parametrize("case", EXTREMES)
def test_claims_can_be_judged_at_the_extremes(case):
    records = [make_words_record(error, method=method, size=size) for (method, size), error in EXTREMES[case].items()]
    rows = summarise(records)
    texts = [claims.describe_winner(rows, make_corpus()), *claims.describe_runs(records, rows, make_corpus())]
    texts += [*claims.explain_failures(records, rows, make_corpus()), *(c.here for c in claims.judge_claims(rows))]
    for text in texts:
        assert "nan" not in text
        assert "inf" not in text.replace("infinite", "")


def test_a_perfect_lstm_is_not_divided_by():
    records = [make_words_record(0.0, method="lstm"), make_words_record(0.2, method="cw")]
    [claim] = claims.judge_claims(summarise(records))
    assert claim.here == (
        "At 500 parameters worse than no error at all by the mean, worse than no error at all by the median."
    )
    assert not claim.holds


def test_the_winner_misses_the_fewest_words():
    records = [make_words_record(error, method=method) for method, error in (("lstm", 0.2), ("cw", 0.4))]
    assert claims.describe_winner(summarise(records), make_corpus()) == (
        "LSTM misses the fewest words, 20.0 % of them; CW-RNN misses 40.0 %. In the paper CW-RNN misses the fewest. "
        "These words are synthetic speech; the paper's were spoken by people."
    )
    assert claims.describe_winner([], make_corpus()) == ""
