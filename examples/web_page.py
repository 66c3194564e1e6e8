"""Train a small network, and make a page that runs it in a browser.

The network reads a noisy wave, one number per step, and returns the wave without the noise.
`python examples/web_page.py FOLDER` keeps the page; paste some numbers into it, one per line.
"""

import sys
import tempfile
from pathlib import Path

import torch

import cwrnn
from cwrnn.export import to_wasm
from cwrnn.network import Network

torch.manual_seed(0)
network = Network(cwrnn.ClockworkRNN(1, 32, schedule=4), output_size=1)
optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
t = torch.arange(200)[:, None, None]
for _ in range(60):
    # 16 waves with other periods and phases in every update
    wave = torch.sin(2 * torch.pi * (t / (20 + 60 * torch.rand(16, 1)) + torch.rand(16, 1)))  # (T, B, 1)
    noisy = wave + 0.5 * torch.randn_like(wave)
    loss = (network(noisy) - wave).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"mean squared error {loss.item():.3f}, that of the noisy wave {(noisy - wave).square().mean().item():.3f}")

with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else f"{temporary}/page")
    print(to_wasm(network, folder, name="denoise"))
    numbers = " ".join(f"{number:.2f}" for number in noisy[:10, 0, 0].tolist())
    print(f"numbers to paste, one per line: {numbers} ...")
