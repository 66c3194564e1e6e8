"""Use the lowest period as a low-pass filter: a network that does not tick at every step cannot learn noise by heart.

Two networks without input learn to generate the same slow wave with noise on it. One has periods from 1 on, the other
from 8 on. Both are compared with the wave without noise, which neither has seen.
`python examples/low_pass.py FILE.png` also draws them.
"""

import sys

import numpy as np
import torch

import cwrnn

T, epochs = 320, 200
t = np.arange(T)
wave = np.sin(2 * np.pi * t / 160) + 0.5 * np.sin(2 * np.pi * t / 64)
noisy = wave + 0.4 * np.random.default_rng(0).standard_normal(T)
target = torch.from_numpy(noisy).float()
nothing = torch.zeros(T, 1, 0)  # (T, B, I): no input


def train(schedule: cwrnn.Schedule) -> np.ndarray:
    """The output of a network with this schedule after training."""
    torch.manual_seed(0)
    rnn = cwrnn.ClockworkRNN(0, schedule.hidden_size, schedule=schedule)
    readout = cwrnn.Readout(schedule.hidden_size, 1)
    parameters = [*rnn.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    for _ in range(epochs):
        output = readout(rnn.ticks(nothing)[0])[:, 0, 0]
        loss = (output - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    return output.detach().numpy()


outputs = {}
for name, periods in (("from 1 on", (1, 2, 4, 8, 16, 32)), ("from 8 on", (8, 16, 32, 64))):
    schedule = cwrnn.Schedule.from_periods(48, periods)
    outputs[name] = output = train(schedule)
    errors = [((output - signal) ** 2).mean() / signal.var() for signal in (noisy, wave)]
    print(
        f"periods {name}: NMSE {errors[0]:.3f} against the noisy wave, {errors[1]:.3f} against the clean wave; "
        f"{schedule.operations().cascade:.0f} multiply-adds per step"
    )

if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
    for panel, (name, output) in zip(panels, outputs.items(), strict=True):
        panel.plot(t, noisy, ".", markersize=3, color="#9aa5b0", label="noisy wave")
        panel.plot(t, wave, color="#34495e", linestyle=(0, (4, 2)), linewidth=1.2, label="clean wave")
        panel.plot(t, output, color="#009e73", linewidth=1.3, label="network")
        panel.set_title(f"periods {name}", loc="left")
    panels[0].legend(ncols=3, fontsize=8, frameon=False, loc="lower left")
    panels[-1].set_xlabel("time step")
    figure.savefig(sys.argv[1], dpi=130)
