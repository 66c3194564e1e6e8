"""Four layers learn to remember one symbol for 100 to 300 steps: a Clockwork RNN, and torch's GRU, LSTM and RNN.

The first step of each sequence shows one of four symbols; noise follows. At the end of the sequence, which comes after
100 to 300 steps, the network must name the symbol. All layers have 64 units and the same data, Adam, clipping, batches,
epochs and learning rates; one thread. The table shows the test accuracy (mean, lowest and highest over the seeds;
chance is 0.25) and the seconds of one training, at the best of the learning rates.

    python examples/long_memory.py                                            a first look
    python examples/long_memory.py --epochs 5,20 --rates 0.003,0.01,0.03      the table in the README
    python examples/long_memory.py --late 50       the symbol comes at a random step, 0 to 50: slow modules miss it
"""

import argparse
import time

import torch
from torch import nn

import cwrnn

SYMBOLS, SEQUENCES, BATCH, UNITS = 4, 512, 64, 64
LAYERS = {"ClockworkRNN": cwrnn.ClockworkRNN, "nn.GRU": nn.GRU, "nn.LSTM": nn.LSTM, "nn.RNN": nn.RNN}


def make_data(seed: int, late: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(100, 301, (SEQUENCES,), generator=draw)
    symbols = torch.randint(SYMBOLS, (SEQUENCES,), generator=draw)
    x = 0.3 * torch.randn(300, SEQUENCES, SYMBOLS, generator=draw)  # (T, B, I)
    x[torch.randint(late + 1, (SEQUENCES,), generator=draw), torch.arange(SEQUENCES), symbols] += 1.0
    return x, lengths, symbols


def train(layer: type[nn.Module], rate: float, seed: int, epochs: list[int], late: int) -> list[tuple[float, float]]:
    """The test accuracy and the seconds of training after each number of epochs."""
    torch.manual_seed(seed)
    rnn, readout = layer(SYMBOLS, UNITS), nn.Linear(UNITS, SYMBOLS)
    parameters = [*rnn.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=rate)
    x, lengths, symbols = make_data(2 * seed, late)
    x_test, lengths_test, symbols_test = make_data(2 * seed + 1, late)
    results, seconds = [], 0.0
    for epoch in range(1, max(epochs) + 1):
        start = time.perf_counter()
        for batch in torch.randperm(SEQUENCES).split(BATCH):
            # of all layers, each sequence's state at its own end; packed sequences would be slower for torch's layers
            ends = rnn(x[:, batch])[0][lengths[batch] - 1, torch.arange(BATCH)]
            loss = nn.functional.cross_entropy(readout(ends), symbols[batch])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
        seconds += time.perf_counter() - start
        if epoch in epochs:
            with torch.no_grad():
                answers = readout(rnn(x_test)[0][lengths_test - 1, torch.arange(SEQUENCES)]).argmax(dim=1)
            results.append(((answers == symbols_test).float().mean().item(), seconds))
    return results


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", default="5")
parser.add_argument("--rates", default="0.03")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--late", type=int, default=0)
options = parser.parse_args()
epochs = sorted(map(int, options.epochs.split(",")))
torch.set_num_threads(1)
print(f"{'layer':<13} {'epochs':>6} {'rate':>6} {'accuracy':>8} {'lowest':>7} {'highest':>7} {'seconds':>8}")
for name, layer in LAYERS.items():
    rates = {rate: [train(layer, float(rate), seed, epochs, options.late) for seed in range(options.seeds)]
             for rate in options.rates.split(",")}  # fmt: skip
    for i, count in enumerate(epochs):
        best = max(rates, key=lambda rate: sum(run[i][0] for run in rates[rate]))
        accuracies, seconds = zip(*(run[i] for run in rates[best]), strict=True)
        mean, lowest, highest = sum(accuracies) / options.seeds, min(accuracies), max(accuracies)
        duration = sum(seconds) / options.seeds
        print(f"{name:<13} {count:6d} {best:>6} {mean:8.2f} {lowest:7.2f} {highest:7.2f} {duration:8.2f}", flush=True)
