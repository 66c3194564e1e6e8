"""Spoken words: the sequences of the paper's second task, section 4.2."""
