"""Export to C: `source.py` writes the program, `plan.py` decides where its numbers are."""
