"""The numbers of the paper: every setting and result that it prints about its experiments, once.

Koutník, Greff, Gomez and Schmidhuber, "A Clockwork RNN" (ICML 2014), section 4. Networks are named by their methods:
"srn" (the paper's RNN), "lstm" and "cw". `docs/paper.md` says where the paper leaves something open.
"""

METHODS = ("srn", "lstm", "cw")
"""The methods that the paper compares, in its order."""
RUNS = 100
"""Trainings of each network, each with other initial weights."""
WEIGHT_DEVIATION = 0.1
"""The standard deviation of the initial weights, whose mean is 0."""
LSTM_FORGET_BIAS = 5.0
"""The initial bias of the LSTM's forget gates."""

GENERATION_SEQUENCES = 5
"""Section 4.1: snippets of one piece of music."""
GENERATION_SAMPLES = 320
"""Samples of each sequence: 7 ms at 44.1 kHz. (The paper prints 44.1 Hz.)"""
GENERATION_INPUTS, GENERATION_OUTPUTS = 0, 1
GENERATION_SIZES = (100, 250, 500, 1000)
"""Parameters of the networks."""
GENERATION_HIDDEN_UNITS = {
    "srn": {100: 9, 250: 15, 500: 22, 1000: 31},
    "lstm": {100: 4, 250: 7, 500: 10, 1000: 15},
    "cw": {100: 11, 250: 19, 500: 27, 1000: 40},
}
"""Table 1: hidden units, or cells of an LSTM, by method and size."""
GENERATION_MODULES = 9
"""Modules of the CW-RNN, with the periods 1, 2, 4, ..., 256."""
GENERATION_LEARNING_RATES = {"srn": 3e-4, "lstm": 3e-5, "cw": 3e-4}
"""Learning rates, by method."""
GENERATION_MOMENTUM = 0.95
GENERATION_EPOCHS = 2000
GENERATION_ERRORS = {("srn", 1000): "0.46 ± 0.08", ("lstm", 1000): "0.04 ± 0.01", ("cw", 1000): "0.007 ± 0.004"}
"""Table 3: mean and deviation of the NMSE over all runs, by method and size."""
GENERATION_LSTM_OVER_CW = 5.7
"""Table 3: how many times larger the error of the LSTM is than that of the CW-RNN."""

WORDS_VOCABULARY = (
    ("making", "walking", "cooking", "looking", "working"),
    ("biblical", "cyclical", "technical", "classical", "critical"),
    ("tradition", "addition", "audition", "recognition", "competition"),
    ("musicians", "discussions", "regulations", "accusations", "conditions"),
    ("subway", "leeway", "freeway", "highway", "hallway"),
)
"""Section 4.2: the 25 words, by cluster. The words of a cluster end alike."""
WORDS_TRAINING_EXAMPLES, WORDS_TEST_EXAMPLES = 5, 2
"""Examples of each word, all by different speakers."""
WORDS_CEPSTRA = 12
"""MFCC coefficients of each frame; the energy makes a 13th channel."""
WORDS_FRAME_STEP, WORDS_FRAME_WINDOW = 10.0, 25.0
"""Milliseconds."""
WORDS_PREEMPHASIS = 0.97
WORDS_INPUTS, WORDS_OUTPUTS = 13, 25
WORDS_SIZES = (500, 1000, 2500, 5000, 10000)
"""Parameters of the networks."""
WORDS_HIDDEN_UNITS = {
    "srn": {500: 10, 1000: 18, 2500: 34, 5000: 54, 10000: 84},
    "lstm": {500: 5, 1000: 8, 2500: 17, 5000: 26, 10000: 41},
    "cw": {500: 10, 1000: 19, 2500: 40, 5000: 65, 10000: 102},
}
"""Table 2: hidden units, or cells of an LSTM, by method and size."""
WORDS_MODULES = 7
"""Modules of the CW-RNN, with the periods 1, 2, 4, ..., 64."""
WORDS_LEARNING_RATES = {"srn": 3e-4, "lstm": 3e-4, "cw": 3e-4}
"""Learning rates, by method."""
WORDS_MOMENTUM = 0.9
WORDS_NOISE = 0.6
"""The standard deviation of the noise that is added to the inputs during training."""
WORDS_PATIENCE = 5
"""Training stops when the error of the noise-free training set has not fallen for this many epochs."""
WORDS_ERRORS = {
    ("srn", 10000): "0.668 ± 0.047",
    ("lstm", 10000): "0.342 ± 0.056",
    ("cw", 10000): "0.168 ± 0.035",
}
"""Table 3: mean and deviation of the error rate on the test set over all runs, by method and size."""
WORDS_LSTM_OVER_CW = 2.0
"""Table 3: the error of the LSTM is more than this many times that of the CW-RNN."""
WORDS_SMALLEST_MARGIN = 0.08
"""CW-RNNs beat the others "by a considerable margin of 8-20 % on average irrespective of the number of parameters"."""
