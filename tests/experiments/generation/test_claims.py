"""The claims about sequence generation agree with the numbers, whatever the numbers are."""

import math

import pytest
from support.made_records import make_dataset, make_record

from cwrnn.experiments.generation import claims
from cwrnn.experiments.generation.weight_coding import Baseline, Point
from cwrnn.experiments.report.statistics import box, summarise


def paper_like(**changes):
    """Returns records whose means are the paper's."""
    means = {("srn", 100): 0.45, ("srn", 1000): 0.46, ("lstm", 100): 0.1, ("lstm", 1000): 0.04, ("cw", 100): 0.1,
             ("cw", 1000): 0.007}  # fmt: skip
    spread = {"srn": 0.08, "lstm": 0.01, "cw": 0.004}
    return [
        make_record(mean + sign * spread[method], method=method, size=size, hidden=4, seed=seed, epochs=2000,
             **changes.get(method, {}))
        for (method, size), mean in means.items()
        for seed, sign in enumerate([-1, 1] * 50)
    ]  # fmt: skip


def judge(records):
    rows = summarise(records)
    return (
        claims.judge_claims(rows),
        claims.explain_failures(records, rows),
        claims.describe_runs(records, rows),
    )


def test_runs_like_the_papers_confirm_every_claim():
    judged, reasons, summary = judge(paper_like())
    assert [claim.holds for claim in judged] == [True] * 8
    assert "within the paper's deviation" in judged[0].here
    assert "5.7 times better by the mean" in judged[3].here
    assert reasons == []
    assert summary[-1].endswith("The paper has the same order.")
    assert "CW-RNN 0.0070, LSTM 0.040 and SRN 0.46" in summary[1]


def test_other_runs_contradict_claims_and_get_reasons():
    records = [
        make_record(
            0.2,
            method="cw",
            size=1000,
            hidden=4,
            seed=seed,
            epochs=300,
            data=make_dataset("easy" if seed % 2 else "hard"),
        )
        for seed in range(8)
    ]
    records += [
        make_record(
            nmse, method="lstm", size=1000, hidden=4, seed=seed, epochs=300, peepholes=False, learning_rate=1e-3
        )
        for seed, nmse in enumerate([0.01, 0.01, 0.01, 40.0])
    ]
    records += [make_record(0.1, method="lstm", size=1000, hidden=4, seed=9, epochs=300, peepholes=False,
                            learning_rate=1e-3, status="diverged")]  # fmt: skip
    judged, reasons, summary = judge(records)
    lstm, cw = judged[:2]
    assert not lstm.holds
    assert "250 times higher" in lstm.here
    assert "29 times higher" in cw.here
    assert summary[-1].endswith("The paper has another order.")
    text = "\n".join(reasons)
    for part in (
        "on easy and", "300 epochs, the paper's for 2000", "learning rate of LSTM was 0.001; the paper's is 3e-05",
        "no peephole connections", "as few as 5 runs", "LSTM at 1000 parameters (mean 10, median 0.010, 1 run worse",
        "1 of 5", "still fell",
    ):  # fmt: skip
        assert part in text
    assert "learning rate of CW-RNN" not in text


def test_every_run_is_counted_by_its_status():
    records = [make_record(0.1), make_record(0.1, seed=1, status="diverged"), make_record(0.1, seed=2, status="failed")]
    _, _, summary = judge(records)
    assert summary[0].startswith("3 networks (CW-RNN) learnt 1 sequence, for 6 epochs each: 1 finished, 1 diverged")
    assert math.isclose(box(records).mean, 0.1)


def test_the_weights_as_a_code_are_compared_with_pcm():
    def point(size, bits, rate, best):
        return Point("cw", size, bits, rate, runs=3, best=best, median=2 * best)

    pcm = [Baseline(1, 0.5), Baseline(2, 0.1), Baseline(3, 0.02)]
    large = [point(1000, 32, 40.0, 0.03), point(1000, 8, 12.0, 0.05)]
    lost, beside = claims.describe_coding([point(100, 8, 9.0, 0.4), *large], pcm)
    assert "CW-RNN (1000 parameters) from 0.060 to 0.10" in lost
    # 0.05 needs 3 bits: 12 / 3 is less than 9 / 2 for 0.4, and than 40 / 3
    assert beside.startswith("No code here is smaller than plain PCM")
    assert (
        "1000 parameters at 8 bits each: 12.0 bits per sample for an NMSE of 0.050, which PCM reaches with 3" in beside
    )
    [beside] = claims.describe_coding([point(100, 8, 1.5, 0.1)], pcm)
    assert beside.startswith("Some codes are smaller than plain PCM")
    [beside] = claims.describe_coding([point(100, 8, 1.5, 0.001)], pcm)
    assert "not even with 3" in beside
    assert claims.describe_coding([], pcm) == []


METHODS = ("srn", "lstm", "cw")
EXTREMES = {
    "no error at all": {
        ("srn", 100): 0.0,
        ("lstm", 100): 0.0,
        ("lstm", 1000): 0.0,
        ("cw", 100): 0.0,
        ("cw", 1000): 0.0,
    },
    "only LSTM is perfect": {("lstm", 100): 0.0, ("lstm", 1000): 0.0, ("cw", 100): 0.5, ("cw", 1000): 0.5},
    "only CW-RNN is perfect": {("srn", 1000): 0.5, ("lstm", 100): 0.5, ("lstm", 1000): 0.5, ("cw", 1000): 0.0},
    "one run": {("cw", 100): 0.1},
    "sizes that differ by method": {("srn", 1000): 0.5, ("cw", 100): 0.1},
    "errors beyond all measure": {("lstm", 1000): 1e30, ("cw", 1000): 1e-30},
}


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("pieces", [1, 2])
def test_claims_can_be_judged_at_the_extremes(case, pieces):
    records = [
        make_record(nmse * (1 + piece), method=method, size=size, hidden=4, data=make_dataset(f"piece {piece}"))
        for (method, size), nmse in EXTREMES[case].items()
        for piece in range(pieces)
    ]
    judged, reasons, summary = judge(records)
    winner = claims.describe_winner(summarise(records))
    for text in [winner, *summary, *reasons, *(claim.here for claim in judged)]:
        assert "nan" not in text
        assert "inf" not in text.replace("infinite", "")


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_claims_need_a_run_that_finished(status):
    records = [make_record(0.1, method=method, status=status) for method in METHODS]
    judged, reasons, summary = judge(records)
    assert (judged, reasons) == ([], [])
    assert summary[-1] == "No run has finished yet, so there is nothing to compare."
    assert claims.describe_winner(summarise(records)) == ""


def test_the_winner_has_the_lowest_mean():
    rows = summarise(paper_like())
    assert claims.describe_winner(rows) == (
        "CW-RNN comes closest to the music, with a mean error 5.7 times lower than LSTM (in the paper CW-RNN is 5.7 "
        "times better than LSTM)."
    )
    assert claims.describe_winner(row for row in rows if row.method == "srn") == (
        "Only SRN was trained: its mean error is 0.46."
    )
    perfect = [make_record(0.0, method="lstm"), make_record(0.2, method="srn")]
    assert "LSTM comes closest to the music, without any error" in claims.describe_winner(summarise(perfect))
