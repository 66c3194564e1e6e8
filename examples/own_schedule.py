"""Choose the periods by hand, by a series or from the data, and train through a readout at tick rate."""

import numpy as np
import torch

import cwrnn
from cwrnn import Schedule

# the network predicts the next step of a signal with a slow and a fast part
t = np.arange(1025)
signal = np.sin(2 * np.pi * t / 200) + 0.3 * np.sin(2 * np.pi * t / 9)

by_hand = Schedule(periods=(1, 3, 50), sizes=(12, 12, 8))
by_series = Schedule.fibonacci(hidden_size=32, modules=6)
by_data = Schedule.from_spectrum(signal, hidden_size=32, modules=5)
print(by_data)

x = torch.tensor(signal[:-1, None, None], dtype=torch.float32)  # (T, B, 1)
target = torch.tensor(signal[1:, None, None], dtype=torch.float32)
for name, schedule in {"by hand": by_hand, "by series": by_series, "by data": by_data}.items():
    torch.manual_seed(0)
    rnn = cwrnn.ClockworkRNN(1, 32, schedule=schedule)
    readout = cwrnn.Readout(32, 1)
    optimiser = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=0.01)
    for _ in range(15):
        ticks, _ = rnn.ticks(x)  # one value per tick; (T, B, 32) is never built
        loss = (readout(ticks) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"{name:<10} {schedule.spec:<32} squared error after 15 steps: {loss.item():.4f}")
