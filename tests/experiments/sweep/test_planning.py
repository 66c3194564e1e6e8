"""Planning gives each method its runs."""

import pytest
from support import small_sweeps

from cwrnn.experiments.networks.build import schedule_parameter_count
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.sweep.store import Store
from cwrnn.schedule import Schedule


def test_peepholes_change_only_the_keys_of_lstms(waves):
    with_, without = (
        {run.method: run.key for run in small_sweeps.plan(waves[:1], methods=list(METHODS), sizes=[100], peepholes=p)}
        for p in (True, False)
    )
    assert {method for method in METHODS if with_[method] != without[method]} == {"lstm", "cw-lstm"}


def test_gated_cells_have_as_many_modules_as_fit(waves):
    """A CW-LSTM of nine modules has at least 262 parameters."""
    runs = small_sweeps.plan(waves[:1], methods=["cw-lstm"], sizes=[100, 250, 500], runs=1)
    assert [(run.size, run.settings.modules, run.hidden, run.parameters) for run in runs] == [
        (100, 4, 5, 109), (250, 8, 9, 265), (500, 9, 13, 494),
    ]  # fmt: skip
    assert [run.schedule for run in runs][:2] == ["1:2,2:1,4:1,8:1", "1:2,2:1,4:1,8:1,16:1,32:1,64:1,128:1"]


@pytest.mark.parametrize("method", ["cw-lstm", "cw-gru"])
def test_a_schedule_is_for_every_method_with_clocks(waves, method):
    schedule = Schedule.parse("1:3,3:2,7:2")
    (run,) = small_sweeps.plan(waves[:1], methods=[method], sizes=[100, 250], schedule=schedule, runs=1)
    count = schedule_parameter_count(method, schedule, 0, 1)
    assert (run.hidden, run.schedule, run.size, run.parameters) == (7, "1:3,3:2,7:2", count, count)


def test_a_schedule_replaces_the_sizes_of_the_clockwork_rnn(tmp_path, waves):
    schedule = Schedule.parse("1:3,3:2,7:2")
    runs = small_sweeps.plan(waves[:1], methods=["srn", "cw"], sizes=[100, 250], schedule=schedule)
    own = [run for run in runs if run.method == "cw"]
    assert {(run.hidden, run.schedule, run.size) for run in own} == {(7, "1:3,3:2,7:2", schedule.parameter_count(0, 1))}
    assert len({run.key for run in runs}) == len(runs) == 4 + 2
    small_sweeps.sweep(tmp_path, waves, runs)
    with Store.read(tmp_path) as store:
        assert {record.run for record in store.records()} == set(runs)
