"""Times the package side by side with torch's own layers of the same size, in one run.

    cwrnn bench                                     all regimes: some minutes
    cwrnn bench layers step                         some regimes: layers, replicas, step, growth
    cwrnn bench compiled                            small layers after torch.compile, beside the same in eager mode
    cwrnn bench streams                             a step of many streams in a pool, beside the same streams alone
    cwrnn bench 1024,8,512,32,32 256,8,512,32,32    layers of these sizes: units, modules, steps, batch, inputs
    cwrnn bench --layer LSTM                        ClockworkLSTM instead of ClockworkRNN
    cwrnn bench --device cuda                       a GPU: some layers beside torch's RNN, LSTM and GRU
    cwrnn bench --device cuda sweep --layer GRU     a GPU: sizes all over the range, beside torch's layer of that cell
    cwrnn bench --device cuda sweep --part 1/8 --seconds 300 --json out/part1.json
    cwrnn bench --device cuda sweep --layer GRU --steps 100,1024 --seconds 300 --json out/gru.json --resume
    cwrnn bench --device cuda sweep --layer GRU --again out/gru.json --below 1.0 --json out/again.json
    cwrnn bench --backend torch --threads 2 --json out/bench.json --picture out/bench.png

`python -m cwrnn.bench` does the same and needs no extra.

Before a layer is timed, its output and its gradients are compared with the specification; a wrong layer is not timed.
Each number is the median of several turns, and everything that is compared takes its turns side by side. On a busy
machine use --threads 1: two threads that wait for each other measure the other jobs.

On a GPU each layer is timed in two ways: back to back, calls that follow each other, and synchronised, calls that the
host waits for. `python -m cwrnn.bench.sweep_table FILE...` prints tables of the JSON files of a sweep.
"""

from .command import main
from .layers import check
from .timing import take_turns

__all__ = ["check", "main", "take_turns"]
