"""Learn the periods of a network that generates two square waves, and turn it into an ordinary layer at the end."""

import torch

import cwrnn

torch.manual_seed(0)
T, epochs = 42, 400
t = torch.arange(T)
target = sum(1.0 - 2.0 * (t // period % 2) for period in (3, 7))  # they switch every 3 and every 7 steps
no_input = torch.zeros(T, 1, 0)  # (T, B, I)

rnn = cwrnn.LearnedClockworkRNN(input_size=0, hidden_size=12, modules=4, candidates=10)
readout = torch.nn.Linear(12, 1)
parameters = [*rnn.parameters(), *readout.parameters()]
optimiser = torch.optim.Adam(parameters, lr=0.03, betas=(0.9, 0.99))

for epoch in range(epochs):
    rnn.sharpen(epoch / epochs)  # clocks are soft in the first half and hard in the second
    output, _ = rnn(no_input)
    loss = (readout(output)[:, 0, 0] - target).square().mean()
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimiser.step()
    if epoch % 100 == 0 or epoch == epochs - 1:
        print(f"epoch {epoch:3d}  squared error {loss.item():.4f}  most probable periods {rnn.periods}")

hardened, report = rnn.harden(no_input)
print(report)
with torch.no_grad():
    # the hardened layer sorts its units by period, so the weights of the readout are sorted too
    readout.weight.copy_(readout.weight[:, report.units])
    error = (readout(hardened(no_input)[0])[:, 0, 0] - target).square().mean()
print(f"hardened: {hardened}, squared error {error.item():.4f}")
