"""The sentences about a network are true."""

import dataclasses
import math

from cwrnn.experiments.inspect.sentences import describe_inspection
from cwrnn.inspection import Silenced


def change_modules(inspected, **fields):
    """Return the inspection with other modules; each field is a list of one value for each module."""
    modules = [
        dataclasses.replace(module, **{name: values[i] for name, values in fields.items()})
        for i, module in enumerate(inspected.modules[: len(next(iter(fields.values())))])
    ]
    return dataclasses.replace(inspected, modules=modules)


def make_silenced(*errors):
    return [Silenced(*[{"nmse": error}] * 4) for error in errors]


def test_sentences_name_the_modules_that_the_output_needs(inspected):
    intact = dataclasses.replace(inspected, intact={"nmse": 0.1})
    changed = change_modules(intact, silenced=make_silenced(0.5, 2.0, 0.2), share=[0.7, 0.2, 0.1])
    text = " ".join(describe_inspection(changed))
    assert "The output needs the module of period 2 most, which makes 20 % of the multiply-adds" in text
    assert "the NMSE is 2.0 instead of 0.10" in text
    assert "needs the module of period 4 least, which makes 10 % of the multiply-adds" in text
    assert text.count("with that module held at its mean, the NMSE is") == 2
    assert "the NMSE is 0.20." in text
    changed = change_modules(intact, silenced=make_silenced(0.1, 2.0, 0.05), share=[0.7, 0.2, 0.1])
    text = " ".join(describe_inspection(changed))
    assert "The modules of periods 1 and 4, with 80 % of the multiply-adds, have no use on these data" in text


def test_sentences_name_the_modules_that_do_half_of_the_work(inspected):
    text = describe_inspection(change_modules(inspected, share=[0.3, 0.2, 0.5], units=[3, 2, 1]))[0]
    assert "The module of period 4 makes 50 % of them" in text
    text = describe_inspection(change_modules(inspected, share=[0.4, 0.3, 0.3]))[0]
    assert "The modules of periods 1 and 2 make 70 % of them" in text


def test_sentences_say_how_far_modules_remember(inspected):
    changed = change_modules(inspected, reach=[0, 9, None], reach_is_open=[False, True, False])
    text = " ".join(describe_inspection(changed))
    assert "The module of period 2 remembers at least 9 steps; the module of period 1 remembers 0 steps. " in text
    assert "1 of 3 modules remember beyond" in text
    text = " ".join(describe_inspection(change_modules(inspected, reach=[1, 7, 7], reach_is_open=[False] * 3)))
    assert "The modules of periods 2 and 4 remember 7 steps; the module of period 1 remembers 1 step. " in text
    assert "No input reaches a module." in describe_inspection(change_modules(inspected, reach=[None, None]))


def test_sentences_name_the_modules_that_need_a_faster_clock(inspected):
    # in 40 steps, modules of periods up to 5 tick at least 8 times
    text = describe_inspection(change_modules(inspected, median_frequency=[0.3, 0.1, 0.01, 0.4], in_band=[1.0] * 4))[-1]
    assert text.startswith(
        "Of the modules that tick at least 8 times in a sequence, the module of period 1 needs a faster clock:"
    )
    text = describe_inspection(change_modules(inspected, median_frequency=[0.1, 0.1], in_band=[1.0] * 2))[-1]
    assert text.startswith("No module needs a faster clock")
    assert "clock" not in describe_inspection(change_modules(inspected, in_band=[math.nan]))[-1]
