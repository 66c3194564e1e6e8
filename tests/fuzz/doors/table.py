"""All doors: the function behind each, and the errors that may leave it."""

from . import command_lines, corpora, estimator_files, layers, model_files, npz_files, paths, schedules, sounds, stores

FAMILIES = (model_files, estimator_files, sounds, corpora, npz_files, stores, paths, schedules, layers, command_lines)
DOORS = {door.name: door for family in FAMILIES for door in family.DOORS}
