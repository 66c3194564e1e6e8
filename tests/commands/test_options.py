"""Texts of options become the values that the functions of the experiments take."""

import pytest

from cwrnn.commands import options
from cwrnn.experiments.errors import ArgumentError


def test_a_learning_rate_is_one_number_a_number_per_method_or_a_list():
    assert options.parse_learning_rate(None) is None
    assert options.parse_learning_rate("3e-4") == 3e-4
    assert options.parse_learning_rate("srn=1e-4, cw=3e-4") == {"srn": 1e-4, "cw": 3e-4}
    assert options.parse_learning_rate("1e-3,1e-4") == [1e-3, 1e-4]


@pytest.mark.parametrize("text", ["fast", "1e-3,", "srn=", "srn=1,2=x"])
def test_a_learning_rate_that_is_no_number_names_the_option(text):
    with pytest.raises(ArgumentError, match="expected numbers above 0") as refused:
        options.parse_learning_rate(text)
    assert refused.value.argument == "learning_rate"


def test_a_method_may_not_have_two_learning_rates():
    with pytest.raises(ArgumentError, match="names a method twice"):
        options.parse_learning_rate("cw=1e-4,cw=2e-4")


def test_sizes_and_methods_are_lists():
    assert options.parse_sizes("250,100") == [250, 100]
    assert options.parse_sizes(None) is None
    assert options.parse_methods("CW, srn") == ["cw", "srn"]
    assert options.parse_words("she, had") == ["she", "had"]
    with pytest.raises(ArgumentError, match="such as 100,250, got 'many'"):
        options.parse_sizes("many")
