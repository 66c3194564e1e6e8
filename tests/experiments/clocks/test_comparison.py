import json
import math

import numpy as np
import pytest
from scipy import stats
from support import made_corpora as speech
from support.made_records import told

from cwrnn.commands import main as cli
from cwrnn.experiments import task as tasks
from cwrnn.experiments.clocks import comparison as series
from cwrnn.experiments.clocks import evolution
from cwrnn.experiments.clocks import square_waves as planted
from cwrnn.experiments.clocks.evolution import Space, evolve
from cwrnn.experiments.clocks.figures import series_plot
from cwrnn.experiments.generation import music as audio
from cwrnn.experiments.generation import training
from cwrnn.experiments.inspect import loading as subject
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.experiments.sweep.store import Store
from cwrnn.schedule import Schedule


@pytest.mark.parametrize("name", series.SERIES)
@pytest.mark.parametrize("size", [150, 999, 1000])
def test_every_series_at_one_budget(name, size):
    signal = np.sin(np.arange(600) / 7) + np.sin(np.arange(600) / 90)
    make = series.series(name, 5, signal=signal)
    schedule = series.at_budget(make, 5, size, 0, 1)
    assert schedule.modules == 5
    assert schedule.parameter_count(0, 1) <= size < make(schedule.hidden_size + 1).parameter_count(0, 1)


def test_the_papers_series_is_the_papers():
    assert series.at_budget(series.series(series.PAPERS, 9), 9, 1000, 0, 1) == Schedule.exponential(40, 9)


def test_a_budget_that_is_too_small():
    with pytest.raises(ValueError, match="at least .* parameters for 5 modules, got 10"):
        series.at_budget(series.series("linear", 5), 5, 10, 0, 1)
    with pytest.raises(ValueError, match="expected one of exponential-2"):
        series.series("cubic", 5)
    with pytest.raises(ValueError, match="needs a signal"):
        series.series("spectrum", 5)


def test_a_short_signal_has_fewer_modules():
    assert series.series("spectrum", 9, signal=np.sin(np.arange(100.0)))(20).modules == 6


def test_planned_for_sequences_and_words():
    sequence = planted.squares([3, 5])
    found = series.plan("generation", [sequence], names=["exponential-2", "linear"], size=300, modules=4, runs=2)
    assert list(found) == ["exponential-2", "linear"]
    (first, _), (other, _) = found.values()
    assert (first.task, first.schedule.split(",")[-1][:2]) == ("clocks generation", "8:")
    assert (other.schedule.split(",")[-1][:2], other.size) == ("4:", 300)
    own = {"own": Schedule.parse("1:3,5:4")}
    (runs,) = series.plan("words", [speech.corpus()], names=[], size=500, runs=3, own=own).values()
    assert [(run.task, run.schedule, run.hidden) for run in runs] == [("clocks words", "1:3,5:4", 7)] * 3


def test_holm_by_hand():
    assert series.holm([0.01, 0.2, 0.02, 0.5]) == pytest.approx([0.04, 0.4, 0.06, 0.5])
    assert series.holm([0.9, 0.8]) == [1.0, 1.0]
    assert series.holm([]) == []


def of(errors, data=None, **options):
    return [
        told(error, seed=seed, data=data, status="finished" if math.isfinite(error) else "diverged", **options)
        for seed, error in enumerate(errors)
    ]


def test_compared_by_ranks():
    first, better, same = [0.5, 0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3, 0.4, 0.45], [0.55, 0.65, 0.75, 0.85, math.inf]
    found = series.compare({"first": of(first), "better": of(better), "same": of(same)})
    assert [each.name for each in found] == ["first", "better", "same"]
    assert (found[0].better, found[0].p) == (None, None)
    asymptotic = {"method": "asymptotic", "use_continuity": False}
    ps = [stats.mannwhitneyu(each, first, **asymptotic).pvalue for each in (better, same)]
    assert found[1].p == pytest.approx(2 * ps[0])
    assert found[2].p == pytest.approx(max(2 * ps[0], ps[1]))
    assert found[1].better == 1.0
    assert found[2].better == pytest.approx(10 / 25)
    assert found[2].box.diverged == 1


def test_a_harder_data_set_is_no_difference():
    """Where every run of both is a hundred times worse on one of two data sets, ranks within each still tell."""
    easy, hard = Dataset("easy", 1, np.array([1.0, -1, 1]), ""), Dataset("hard", 1, np.array([-1.0, 1, 1]), "")
    generator = np.random.default_rng(0)
    first, lower = generator.uniform(0.5, 0.6, 10), generator.uniform(0.4, 0.49, 10)
    one = of(first, data=easy) + of(100 * first, data=hard)
    other = of(lower, data=easy) + of(100 * lower, data=hard)
    found = series.compare({"one": one, "other": other})
    assert found[1].better == 1.0
    assert found[1].p < 1e-6


def test_no_difference_at_all():
    found = series.compare({"one": of([0.5] * 4), "other": of([0.5] * 4)})
    assert (found[1].better, found[1].p) == (0.5, 1.0)


def test_the_picture_shows_every_series():
    found = series.compare({"exponential-2": of([0.5, 0.6]), "linear": of([0.1, math.inf]), "random": of([math.inf])})
    (panel,) = series_plot(found, "NMSE").axes
    assert [label.get_text().split("\n")[0] for label in panel.get_xticklabels()] == ["exponential", "linear", "random"]
    assert panel.get_xticklabels()[1].get_text().endswith("1 of 2")
    assert panel.get_ylabel() == "NMSE"


def test_planted_sequences():
    (one,) = planted.load("squares:3,7,21")
    three = planted.load("squares:3,7,21x3")
    assert len({each.digest for each in three}) == 3
    assert one.digest == three[0].digest
    assert [each.name for each in planted.load("squares:3,7,21x2+1")] == [each.name for each in three[1:]]
    assert [each.digest for each in planted.load("squares:3,7,21x2+1")] == [each.digest for each in three[1:]]
    assert (one.samples.min(), one.samples.max()) == (-1, 1)
    clean = planted.waves([3, 7, 21])
    assert set(np.flatnonzero(np.diff(clean)) + 1) <= {k * p for p in (3, 7, 21) for k in range(1, 71)}
    assert np.corrcoef(clean, one.samples)[0, 1] > 0.99


@pytest.mark.parametrize("text", ["", "3,,7", "0", "3x0", "a", "3x", "3+", "99999"])
def test_bad_planted_sequences(text):
    with pytest.raises(audio.AudioError, match="squares:"):
        planted.load(f"squares:{text}")


SPACE = Space(modules=3, longest=32, size=200, inputs=0, outputs=1)


def distance_to(*wanted):
    """Judges schedules by how far their periods are from those wanted, in octaves."""

    def judge(schedules):
        return [
            sum(min(abs(math.log2(p / w)) for p in schedule.periods) for w in wanted) + 0.001 for schedule in schedules
        ]

    return judge


def test_evolution_finds_what_is_best():
    *_, last = evolve(SPACE, distance_to(3, 7, 21), generations=25, population=12)
    assert last.best.periods == (3, 7, 21)
    assert last.best.parameter_count(0, 1) <= 200
    assert last.number == 25


def test_evolution_is_its_seeds():
    one, again, other = (
        [found.schedules for found in evolve(SPACE, distance_to(5), generations=3, seed=seed)] for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other


def test_evolution_leaves_numpys_generator_alone():
    np.random.seed(7)
    expected = np.random.rand(3)
    np.random.seed(7)
    for _ in evolve(SPACE, distance_to(5), generations=2, population=4):
        pass
    np.testing.assert_array_equal(np.random.rand(3), expected)


def test_what_the_user_draws_does_not_change_the_search():
    def draws(schedules):
        np.random.rand(5)
        return distance_to(5)(schedules)

    one, other = ([g.schedules for g in evolve(SPACE, judge, generations=3)] for judge in (draws, distance_to(5)))
    assert one == other


def test_no_candidate_is_judged_twice():
    judged = []

    def judge(schedules):
        judged.extend(schedules)
        return [math.nan if schedule.periods[0] == 1 else 1.0 for schedule in schedules]

    for found in evolve(SPACE, judge, generations=4):
        assert all(error in (1.0, evolution.WORST) for error in found.errors)
    assert len(judged) == len(set(judged))


def test_a_search_that_has_settled():
    """Sooner or later a generation has nothing new."""
    *_, last = evolve(
        Space(modules=2, longest=2, size=100, inputs=0, outputs=1), distance_to(2), generations=12, population=4
    )
    assert last.number == 12


def test_no_difference_is_found_by_chance_alone():
    """Twenty data sets of which each has one run of both: two in a hundred such tests may say less than 2 %."""
    generator = np.random.default_rng(0)
    data = [Dataset(f"d{i}", 1, np.array([1.0, -1, i]) / (i + 1), "") for i in range(20)]
    low = 0
    for _ in range(200):
        one, other = ([record for each in data for record in of([generator.random()], data=each)] for _ in range(2))
        low += series.compare({"one": one, "other": other})[1].p < 0.05
    assert low <= 20


def test_sizes_are_searched():
    space = Space(modules=2, longest=32, size=300, inputs=0, outputs=1, sizes=True)

    def judge(schedules):
        return [1 + (schedule.sizes[0] / schedule.hidden_size - 0.8) ** 2 for schedule in schedules]

    *_, last = evolve(space, judge, generations=20)
    assert last.best.sizes[0] / last.best.hidden_size == pytest.approx(0.8, abs=0.05)
    for schedule in last.schedules:
        assert schedule.parameter_count(0, 1) <= 300


@pytest.mark.parametrize("options", [{"generations": 0}, {"population": 3}])
def test_a_search_that_is_none(options):
    with pytest.raises(ValueError, match="expected 1 generation"):
        next(evolve(SPACE, distance_to(5), **options))
    with pytest.raises(ValueError, match="longest period must be at least 2"):
        Space(3, 1, 200, 0, 1)
    with pytest.raises(ValueError, match="modules must be at least 2"):
        Space(1, 8, 200, 0, 1)


TINY = ("--size", "120", "--modules", "3", "--epochs", "3", "--workers", "1", "--quiet")


def run(capsys, *arguments):
    code = cli.main(["clocks", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_compare_from_the_command_line(tmp_path, capsys):
    arguments = ("compare", "--data", "squares:3,5x2", "--runs", "2", "--schedule", "1:2,5:3", *TINY, "--out", tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    for name in (*series.SERIES, "own 1:2,5:3"):
        assert name in out
    assert (tmp_path / "figures" / "clocks.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = run(capsys, *arguments, "--resume", "--json")
    found = json.loads(out)
    assert (code, len(found["series"]), found["series"][0]["p"]) == (0, 9, None)
    assert [each["finished"] for each in found["series"]] == [4] * 9
    planned = {name: found[name] for name in ("size", "modules", "runs", "epochs", "learning_rate", "seed")}
    assert planned == {"size": 120, "modules": 3, "runs": 2, "epochs": 3, "learning_rate": 3e-4, "seed": 0}
    with Store.read(tmp_path) as store:
        records = store.records(tasks.CLOCKS["generation"])
    # what two series have in common is trained once
    assert {record.schedule for record in records} == {spec for each in found["series"] for spec in each["schedules"]}
    assert len(records) < 4 * 9
    assert all(0 <= each["p"] <= 1 for each in found["series"][1:])
    # what was compared can be looked into
    assert subject.load(tmp_path).facts["store"].startswith(str(tmp_path))
    page, numbers = report(tmp_path)
    assert numbers["compared"]
    assert [(each["name"], each["p"]) for each in numbers["series"]] == [
        (each["name"], each["p"]) for each in found["series"]
    ]
    for each in found["series"]:
        assert all(f"<td>{text}</td>" in page for text in (each["name"], "; ".join(each["schedules"])))
    assert "other clocks than the paper's.</p>" in page
    assert (tmp_path / "figures" / "clocks-generation" / "series.svg").exists()
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert "--resume" in err


def report(folder):
    """The page, and the numbers of its only chapter."""
    assert cli.main(["report", str(folder)]) == 0
    numbers = json.loads((folder / "summary.json").read_text())
    (chapter,) = numbers.keys() & {"generation", "words", "clocks-generation", "clocks-words"}
    return (folder / "index.html").read_text(), numbers[chapter]


def test_evolve_from_the_command_line(tmp_path, capsys):
    arguments = ("evolve", "--data", "squares:3,5", "--runs", "1", "--generations", "2", "--population", "4", *TINY)
    code, out, err = run(capsys, *arguments, "--out", tmp_path / "a")
    assert (code, err) == (0, "")
    spec = (tmp_path / "a" / "schedule.txt").read_text().strip()
    assert f"The best schedule is {spec}" in out
    Schedule.parse(spec)
    # interrupted after the first generation, and gone on with: the same end
    first = run(capsys, *arguments, "--generations", "1", "--out", tmp_path / "b")
    assert first[0] == 0
    with Store.read(tmp_path / "b") as store:
        before = {record.key: record.finished_at for record in store.records(tasks.CLOCKS["generation"])}
    code, out, err = run(capsys, *arguments, "--resume", "--json", "--out", tmp_path / "b")
    assert (code, json.loads(out)["schedule"]) == (0, spec)
    with Store.read(tmp_path / "b") as store:
        after = {record.key: record.finished_at for record in store.records(tasks.CLOCKS["generation"])}
    assert before.items() <= after.items()
    assert len(after) > len(before)
    page, numbers = report(tmp_path / "b")
    assert numbers["series"][0]["name"] == spec
    assert "chosen by these very runs" in page
    assert not numbers["compared"]


def failing(seeds):
    """Training that fails for these seeds."""
    train_many = training.train_many

    def train(method, hidden, targets, its, *rest, **options):
        if set(its) & set(seeds):
            raise RuntimeError("no luck")
        return train_many(method, hidden, targets, its, *rest, **options)

    return train


SEARCH = ("evolve", "--data", "squares:3", "--runs", "3", "--generations", "2", "--population", "4", *TINY[:-1])


def test_runs_of_a_search_that_fail_are_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "train_many", failing({2}))
    code, out, err = run(capsys, *SEARCH, "--json", "--out", tmp_path)
    assert code == 1
    failed = json.loads(out)["failed"]
    assert failed > 0
    assert "generation 1 of 2: best" in err
    assert "4 of 12 runs failed" in err
    assert f"{failed} runs failed; --resume tries them again" in err
    assert "no luck" in err
    monkeypatch.undo()
    code, out, err = run(capsys, *SEARCH, "--resume", "--out", tmp_path)
    assert code == 0
    assert "failed" not in err


def test_a_search_whose_runs_all_fail_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "train_many", failing({0, 1, 2}))
    code, out, err = run(capsys, *SEARCH, "--out", tmp_path)
    assert (code, out) == (1, "")
    assert "every run failed; the first one:" in err
    assert "no luck" in err
    assert "generation 1" not in err


def test_a_search_that_diverges(tmp_path, capsys):
    code, out, err = run(capsys, *SEARCH, "--learning-rate", "1e30", "--out", tmp_path)
    assert (code, out) == (1, "")
    assert "generation 1 of 2: none is of use; 12 of 12 runs diverged" in " ".join(err.split())
    assert "try a lower --learning-rate" in err


def test_clocks_of_words(tmp_path, capsys, monkeypatch):
    from cwrnn.commands import clocks_options

    monkeypatch.setattr(clocks_options, "load_corpus", lambda source, words, quiet: speech.corpus())
    options = ("--task", "words", "--size", "400", "--modules", "3", "--epochs", "2", "--workers", "1", "--quiet")
    compared = ("compare", *options, "--runs", "1", "--series", "linear,spectrum")
    code, out, _ = run(capsys, *compared, "--out", tmp_path / "c")
    assert code == 0
    assert "error %" in out
    code, out, _ = run(
        capsys, "evolve", *options, "--runs", "1", "--generations", "1", "--population", "4", "--out", tmp_path / "e"
    )
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--series", "cubic"], "expected some of"),
        (["compare", "--size", "5"], "--size: size must be at least"),
        (
            ["compare", "--modules", "60", "--size", "9999"],
            "--modules: exponential-2 with 60 modules: periods must be at",
        ),
        (["compare", "--schedule", "1;2"], "a schedule is written"),
        (["compare", "--schedule", "1:9,2:9", "--size", "200"], "--schedule: 1:9,2:9 has 282 parameters, and --size"),
        (["compare", "--data", "squares:x"], "expected squares:"),
        (["compare", "--data", "squares:3", "--data", "squares:3"], "two sequences have the name"),
        (["compare", "--learning-rate", "-1"], "expected a number above 0"),
        (["evolve", "--size", "5"], "--size: size must be at least"),
        (["evolve", "--modules", "1"], "--modules: modules must be at least 2, got 1"),
        (["evolve", "--task", "words", "--data", "bundle", "--data", "bundle"], "one source of words"),
        (["evolve", "--scheduler", "tcp://x:1"], "needs the engine dask"),
    ],
)
def test_wrong_usage(arguments, message, tmp_path, capsys):
    code, _, err = run(capsys, *arguments, "--out", tmp_path / "none")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "none").exists()
