"""Train a Clockwork RNN to name, at the end of a sequence, the mark that it saw at the beginning."""

import torch

import cwrnn

torch.manual_seed(0)
T, B = 60, 64  # 64 sequences of 60 steps

# 32 units in 6 modules with the periods 1, 2, 4, 8, 16 and 32
rnn = cwrnn.ClockworkRNN(input_size=1, hidden_size=32, schedule=6)
classify = torch.nn.Linear(32, 2)
optimiser = torch.optim.Adam([*rnn.parameters(), *classify.parameters()], lr=0.01)
print(rnn.schedule)

accuracy = 0.0
for step in range(1, 61):
    # the first step is a mark, +2 or -2; the others are noise
    x = 0.5 * torch.randn(T, B, 1)
    label = torch.randint(2, (B,))
    x[0, :, 0] = 4.0 * label - 2.0

    output, h_n = rnn(x)  # as torch.nn.RNN: (T, B, 32) and (1, B, 32)
    logits = classify(h_n[0])
    loss = torch.nn.functional.cross_entropy(logits, label)

    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    accuracy = 0.9 * accuracy + 0.1 * (logits.argmax(dim=1) == label).float().mean().item()
    if step % 20 == 0:
        print(f"step {step:3d}  loss {loss.item():.3f}  accuracy {accuracy:.2f}")
