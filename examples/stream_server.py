"""A server in miniature: streams come, pause and go, and all that have input make one step in one call."""

import random
import time

import torch

import cwrnn

torch.set_num_threads(1)  # as in the numbers of docs/performance.md
torch.manual_seed(0)
random.seed(0)
rnn = cwrnn.ClockworkRNN(input_size=13, hidden_size=128, schedule=8).eval()
readout = cwrnn.Readout(128, 2).eval()  # such as the probability of two events
pool = cwrnn.StreamPool(rnn)
parked = {}  # the states of clients that have left, and may come back
sent, returned = [], []  # what client 0 sends and gets, to be checked at the end
names = (f"client {number}" for number in range(100_000))
steps, answers, seconds = 300, 0, 0.0

for _ in range(steps):
    # some clients arrive, some come back with the state in which they left, and some leave
    for _ in range(random.randrange(8)):
        pool.open(next(names))
    if parked and random.random() < 0.5:
        name = random.choice(list(parked))
        pool.open(name, parked.pop(name))
    if len(pool) > 1 and random.random() < 0.5:
        name = random.choice(list(pool))
        parked[name] = pool.close(name)

    # a part of them has sent something: one call for all of these
    ready = [name for name in pool if random.random() < 0.8]
    inputs = torch.randn(len(ready), 13)
    start = time.perf_counter()
    with torch.no_grad():
        y = pool.step(ready, inputs)
        seconds += time.perf_counter() - start
        answer = readout(y).softmax(dim=-1)
    answers += len(answer)
    if "client 0" in ready:
        place = ready.index("client 0")
        sent.append(inputs[place])
        returned.append(y[place])

print(f"{steps} steps, {answers} answers, {len(pool)} streams are open and {len(parked)} have left")
print(f"{seconds / steps * 1e6:.0f} us per call of pool.step, for {answers / steps:.0f} streams on average")

# every stream has its own clock, and its outputs are those that it gets alone
with torch.no_grad():
    whole, _ = rnn(torch.stack(sent)[:, None])
difference = (torch.stack(returned) - whole[:, 0]).abs().max()
print(f"client 0 made {len(whole)} steps; the largest difference from one call on its whole input: {difference:.1e}")
