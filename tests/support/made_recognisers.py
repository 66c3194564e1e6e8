"""A small recogniser, trained on made-up recordings."""

from support.sound_files import write_word_folders

from cwrnn.experiments.words.corpus import load_corpus
from cwrnn.experiments.words.recogniser.training import fit_recogniser
from cwrnn.experiments.words.training import WordSettings
from cwrnn.schedule import Schedule

SCHEDULE = Schedule((1, 2, 5), (6, 4, 3))
WORDS = ("yes", "no", "née")


def make_settings(**options):
    return WordSettings(**{"learning_rate": 0.01, "epochs": 6, "inputs": 13, "outputs": 3} | options)


def write_recordings(folder):
    """Write four recordings of each of three words, and return the folder."""
    return write_word_folders(folder, WORDS, 4)


def load_recordings(folder):
    return load_corpus(f"folder:{folder}", cache=False)


def train_on_recordings(folder):
    return fit_recogniser(load_recordings(folder), SCHEDULE, make_settings(), seeds=[3, 4])
