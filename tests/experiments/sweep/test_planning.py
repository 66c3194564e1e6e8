"""Planning gives each method its runs."""

from support import small_sweeps

from cwrnn.experiments.sweep.store import Store
from cwrnn.schedule import Schedule


def test_peepholes_change_only_the_keys_of_lstms(waves):
    with_, without = (
        {
            run.method: run.key
            for run in small_sweeps.plan(waves[:1], methods=["srn", "lstm", "cw"], sizes=[100], peepholes=p)
        }
        for p in (True, False)
    )
    assert (with_["srn"], with_["cw"]) == (without["srn"], without["cw"])
    assert with_["lstm"] != without["lstm"]


def test_a_schedule_replaces_the_sizes_of_the_clockwork_rnn(tmp_path, waves):
    schedule = Schedule.parse("1:3,3:2,7:2")
    runs = small_sweeps.plan(waves[:1], methods=["srn", "cw"], sizes=[100, 250], schedule=schedule)
    own = [run for run in runs if run.method == "cw"]
    assert {(run.hidden, run.schedule, run.size) for run in own} == {(7, "1:3,3:2,7:2", schedule.parameter_count(0, 1))}
    assert len({run.key for run in runs}) == len(runs) == 4 + 2
    small_sweeps.sweep(tmp_path, waves, runs)
    with Store.read(tmp_path) as store:
        assert {record.run for record in store.records()} == set(runs)
