"""The key of a run names everything that the run depends on."""

import dataclasses

from support import small_sweeps

from cwrnn.experiments.generation.training import GenerationSettings
from cwrnn.experiments.sweep.run import Run


def test_every_field_of_a_run_changes_its_key():
    run = Run("generation", "a", "0", "cw", 100, 11, 0, GenerationSettings(learning_rate=3e-4))
    others = [
        dataclasses.replace(run, **{name: value})
        for name, value in (
            ("task", "search"),
            ("data", "b"),
            ("digest", "1"),
            ("method", "srn"),
            ("size", 101),
            ("hidden", 12),
            ("seed", 1),
            ("settings", GenerationSettings(learning_rate=3e-4, epochs=1999)),
            ("settings", GenerationSettings(learning_rate=3.0000000000000003e-4)),
        )
    ]
    assert len({run.key, *(other.key for other in others)}) == 10
    assert dataclasses.replace(run).key == run.key
    # the key is the same in every store, on every machine and in every version with the same training
    assert run.key == "4e1089aceef3d2efa89454f85e73d297630312962bcf1a355c5c790aefb8965c"


def test_keys_without_a_schedule_have_not_changed(waves):
    """Keys are the same as before runs could have schedules, so stored runs are not trained again."""
    (run,) = small_sweeps.plan(waves[:1], methods=["cw"], sizes=[100], runs=1)
    assert run.key == "30cbb657820cf0e1a0041bde51245a2791ac70994e2f530a725785c3b37c4d49"


def test_keys_of_lstms_have_not_changed(waves):
    (run,) = small_sweeps.plan(waves[:1], methods=["lstm"], sizes=[100], runs=1)
    assert run.key == "659fc65dcd423bb5a3717836d88a2a01865a56197ad99a332c6e6af8e52bd1cd"
