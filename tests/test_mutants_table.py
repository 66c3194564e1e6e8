"""The table of breaks on purpose (mutants.py) fits the code. `make mutants` makes the breaks themselves."""

from mutants import MUTANTS, list_stale_parts


def test_every_mutant_names_one_place_in_the_code_and_tests_that_exist():
    assert [fault for mutant in MUTANTS for fault in list_stale_parts(mutant)] == []


def test_no_two_mutants_have_the_same_name():
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
