"""Process a stream chunk by chunk, then step by step: the result equals that of one call."""

import torch

import cwrnn

torch.manual_seed(0)
rnn = cwrnn.ClockworkRNN(input_size=3, hidden_size=64, schedule=6).eval()
stream = torch.randn(1000, 1, 3)  # (time, batch, features)

with torch.no_grad():
    whole, _ = rnn(stream)

    # chunks may have any length; the state of a stream is (h, t), the hidden state and the clock
    first, state = rnn(stream[:137], return_state=True)
    second, state = rnn(stream[137:500], state)

    # one step at a time; only the modules that tick are computed
    steps = []
    for x_t in stream[500:]:
        y, state = rnn.step(x_t, state)
        steps.append(y)

parts = torch.cat([first, second, torch.stack(steps)])
print(f"{state.t} steps, largest difference from one call: {(parts - whole).abs().max():.1e}")

operations = rnn.schedule.operations(rnn.input_size)
print(
    f"multiply-adds per step: {operations.dense:.0f} dense, {operations.paper:.0f} for the modules that tick, "
    f"{operations.cascade:.0f} with cached messages, as in the C kernel"
)
