import json
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn.experiments import demo, models, music, training
from cwrnn.experiments.models import LSTM, build, parameter_count

# tables 1 and 2 of the paper: hidden sizes, and the parameters that they make
TASK_1 = {
    "srn": {9: 100, 15: 256, 22: 529, 31: 1024},
    "cw": {11: 100, 19: 249, 27: 469, 40: 980},
    "lstm": {4: 85, 7: 232, 10: 451, 15: 976},
}
TASK_2 = {
    "srn": {10: 515, 18: 1051, 34: 2507, 54: 5047, 84: 10357},
    "cw": {10: 480, 19: 980, 40: 2507, 65: 4982, 102: 9956},
    "lstm": {5: 530, 8: 929, 17: 2558, 26: 4835, 41: 10070},
}
COUNTS = [
    pytest.param(kind, hidden_size, *rest, count, id=f"{kind}-{hidden_size}-{count}")
    for table, rest in ((TASK_1, (0, 1, 9)), (TASK_2, (13, 25, 7)))
    for kind, sizes in table.items()
    for hidden_size, count in sizes.items()
]


@pytest.mark.parametrize(("kind", "hidden_size", "input_size", "output_size", "modules", "count"), COUNTS)
def test_parameter_counts_of_the_paper(kind, hidden_size, input_size, output_size, modules, count):
    sizes = (kind, hidden_size, input_size, output_size)
    assert parameter_count(*sizes, modules=modules, peepholes=False) == count

    network = build(*sizes, modules=modules, peepholes=False)
    built = sum(parameter.numel() for parameter in network.parameters())
    if kind == "cw":
        # stored dense; the paper counts the periods, but not what is masked
        built += modules - int((~network.layer.schedule.mask()).sum())
    assert built == count


def test_there_are_27_counts():
    assert len(COUNTS) == 27


def test_peepholes_are_three_per_cell():
    assert parameter_count("lstm", 15) == 1021
    assert sum(parameter.numel() for parameter in build("lstm", 15).parameters()) == 1021


@pytest.mark.parametrize("kind", models.KINDS)
def test_initial_weights_are_the_papers(kind):
    network = build(kind, 60, seed=3)
    values = torch.cat(
        [value[value != 0].flatten() for name, value in network.named_parameters() if "bias" not in name]
    )
    assert abs(values.mean().item()) < 0.01
    assert abs(values.std().item() - 0.1) < 0.005
    same, other = build(kind, 60, seed=3).state_dict(), build(kind, 60, seed=4).state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(value, same[name])
        assert value.numel() == 0 or not torch.equal(value, other[name])


def test_forget_gates_begin_open():
    bias = build("lstm", 4).layer.bias
    assert (bias[4:8] == 5).all()
    assert bias[:4].abs().max() < 1
    assert bias[8:].abs().max() < 1
    assert (build("lstm", 4, forget_bias=-2.0).layer.bias[4:8] == -2).all()


def test_unknown_kind():
    for function in (build, parameter_count):
        with pytest.raises(ValueError, match="kind must be one of cw, srn, lstm, got 'gru'"):
            function("gru", 4)


def test_srn_is_an_elman_network(close):
    network = build("srn", 6, 3, 2, seed=1).double()
    elman = nn.RNN(3, 6).double()
    with torch.no_grad():
        elman.weight_ih_l0.copy_(network.layer.weight_ih_l0)
        elman.weight_hh_l0.copy_(network.layer.weight_hh_l0)
        elman.bias_ih_l0.copy_(network.layer.bias_l0)
        elman.bias_hh_l0.zero_()
    x = torch.randn(20, 4, 3, dtype=torch.float64)
    close(network(x), network.readout(elman(x)[0]))


def test_lstm_without_peepholes_is_torchs(close):
    lstm, expected = LSTM(3, 5, peepholes=False).double(), nn.LSTM(3, 5).double()
    assert lstm.weight_ch is None
    # beyond normal(0, 0.1), where the gates do not move
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=1.0)
    with torch.no_grad():
        expected.weight_ih_l0.copy_(lstm.weight_ih)
        expected.weight_hh_l0.copy_(lstm.weight_hh)
        expected.bias_ih_l0.copy_(lstm.bias)
        expected.bias_hh_l0.zero_()
    x = torch.randn(30, 4, 3, dtype=torch.float64, requires_grad=True)
    outputs = lstm(x), expected(x)[0]
    close(*outputs)
    cotangent = torch.randn_like(outputs[0])
    parameters = [lstm.weight_ih, lstm.weight_hh, lstm.bias]
    twins = [expected.weight_ih_l0, expected.weight_hh_l0, expected.bias_ih_l0]
    gradients = torch.autograd.grad(outputs[0], [x, *parameters], cotangent)
    for actual, wanted in zip(gradients, torch.autograd.grad(outputs[1], [x, *twins], cotangent), strict=True):
        close(actual, wanted)


def test_lstm_with_peepholes_is_its_formula(close):
    lstm = LSTM(2, 3).double()
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=1.0)
    x = torch.randn(12, 4, 2, dtype=torch.float64, requires_grad=True)

    W, U, b = (value.unflatten(0, (4, 3)) for value in (lstm.weight_ih, lstm.weight_hh, lstm.bias))
    p = lstm.weight_ch
    h = c = torch.zeros(4, 3, dtype=torch.float64)
    expected = []
    for x_t in x:
        zi, zf, zg, zo = (x_t @ W[k].T + h @ U[k].T + b[k] for k in range(4))
        c = torch.sigmoid(zf + p[1] * c) * c + torch.sigmoid(zi + p[0] * c) * torch.tanh(zg)
        h = torch.sigmoid(zo + p[2] * c) * torch.tanh(c)
        expected.append(h)

    output, expected = lstm(x), torch.stack(expected)
    close(output, expected)
    cotangent = torch.randn_like(output)
    sources = [x, *lstm.parameters()]
    assert len(sources) == 5
    gradients = torch.autograd.grad(output, sources, cotangent)
    for actual, wanted in zip(gradients, torch.autograd.grad(expected, sources, cotangent), strict=True):
        close(actual, wanted)


def test_lstm_scan_gradients_of_both_states():
    arguments = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 2, 8), (8, 2), (3, 2))]
    assert torch.autograd.gradcheck(models._LSTMScan.apply, arguments)


def test_nmse_by_hand():
    target = np.array([0.0, 2.0, 4.0])
    # (1 + 0 + 9) / (4 + 0 + 4)
    assert training.nmse(np.array([1.0, 2.0, 1.0]), target) == 1.25
    assert training.nmse(np.full(3, 2.0), target) == 1.0
    assert training.nmse(target, target) == 0.0
    with pytest.raises(ValueError, match="constant"):
        training.nmse(target, np.ones(3))
    with pytest.raises(ValueError, match="one shape"):
        training.nmse(np.ones(2), target)


def decay(steps=20):
    return np.exp(-np.arange(steps) / 4)


@pytest.mark.parametrize(("kind", "hidden_size", "rate"), [("cw", 12, 1e-2), ("srn", 6, 1e-2), ("lstm", 4, 3e-3)])
def test_training_learns_and_repeats(kind, hidden_size, rate):
    target = decay()

    def run(seed):
        network = build(kind, hidden_size, modules=4, seed=seed)
        return training.train(network, target, epochs=60, learning_rate=rate)

    result, again, other = run(0), run(0), run(1)
    # beyond the mean of the target, which is all that a network without memory can learn
    assert result.nmse < 0.4
    assert result.losses[-1] < 0.4 * result.losses[0]
    assert not result.diverged
    assert result.epochs == 60 == len(result.losses) - 1
    assert result.losses == again.losses
    assert np.array_equal(result.output, again.output)
    assert result.losses != other.losses


def test_loss_is_half_the_summed_square_and_the_output_is_that_of_the_end():
    target, seen = decay(), []
    network = build("cw", 12, modules=4)
    nothing = torch.zeros(len(target), 1, 0)
    before = network(nothing).detach()[:, 0, 0].double().numpy()
    result = training.train(
        network, target, epochs=5, learning_rate=1e-3, progress=lambda epoch, nmse: seen.append((epoch, nmse))
    )
    after = network(nothing).detach()[:, 0, 0].double().numpy()
    assert np.array_equal(result.output, after)
    assert result.losses[0] == pytest.approx(0.5 * np.square(before - target).sum(), rel=1e-5)
    assert result.losses[-1] == pytest.approx(0.5 * np.square(after - target).sum(), rel=1e-5)
    assert result.nmse == training.nmse(after, target)
    assert [epoch for epoch, _ in seen] == list(range(6))
    assert seen[-1][1] == pytest.approx(result.nmse, rel=1e-5)


def test_updates_are_nesterovs():
    target = decay(10)
    network, twin = build("srn", 3), build("srn", 3)
    training.train(network, target, epochs=3, learning_rate=0.01, momentum=0.9)
    parameters = [parameter for parameter in twin.parameters() if parameter.numel()]
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    for _ in range(3):
        output = twin(torch.zeros(10, 1, 0))[:, 0, 0]
        loss = 0.5 * (output - torch.from_numpy(target).float()).square().sum()
        for parameter, velocity, slope in zip(
            parameters, velocities, torch.autograd.grad(loss, parameters), strict=True
        ):
            velocity.mul_(0.9).add_(slope)
            parameter.data -= 0.01 * (slope + 0.9 * velocity)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter, twin.get_parameter(name), rtol=1e-5, atol=1e-6)


def test_best_is_the_lowest_of_the_curve():
    # momentum overshoots: the loss falls, then rises
    target = decay()
    result = training.train(build("cw", 12, modules=4), target, epochs=60, learning_rate=0.01)
    assert result.best_epoch == int(np.argmin(result.losses)) < result.epochs
    assert result.best_nmse == pytest.approx(result.nmse * min(result.losses) / result.losses[-1], rel=1e-4)
    assert result.best_nmse == training.nmse(result.best_output, target)


@pytest.mark.parametrize("kind", models.KINDS)
def test_divergence_is_reported(kind):
    result = training.train(build(kind, 12, modules=4), decay(), epochs=200, learning_rate=1e6)
    assert result.diverged
    assert math.isnan(result.nmse)
    assert not math.isfinite(result.losses[-1])
    assert all(math.isfinite(loss) for loss in result.losses[:-1])
    assert result.epochs == len(result.losses) - 1 < 200
    assert math.isfinite(result.best_nmse)
    assert np.isfinite(result.best_output).all()


def test_training_leaves_the_threads_alone():
    torch.set_num_threads(2)
    training.train(build("srn", 2), decay(5), epochs=1, learning_rate=1e-3)
    assert torch.get_num_threads() == 2


def test_epochs_must_be_positive():
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        training.train(build("srn", 2), decay(), epochs=0, learning_rate=1e-3)


def test_snippets():
    assert len(music.names()) == 5
    snippets = [music.load(name) for name in music.names()]
    for snippet in snippets:
        assert snippet.shape == (320,)
        assert snippet.dtype == np.float64
        assert (snippet.min(), snippet.max()) == (-1.0, 1.0)
    assert len({snippet.tobytes() for snippet in snippets}) == 5
    with pytest.raises(ValueError, match="name must be one of .*, got 'nothing'"):
        music.load("nothing")


def test_scaling_is_affine():
    signal = np.random.default_rng(0).normal(3.0, 0.1, size=50)
    values = music.scaled(signal)
    assert (values.min(), values.max()) == (-1.0, 1.0)
    assert np.corrcoef(signal, values)[0, 1] == pytest.approx(1.0)
    for bad in (np.ones(4), np.array([0.0, np.nan])):
        with pytest.raises(ValueError, match="finite and not constant"):
            music.scaled(bad)


def test_demo_writes_its_files(tmp_path, capsys, monkeypatch):
    # how wide the table is must not depend on who runs the test
    monkeypatch.setenv("COLUMNS", "100")
    out = tmp_path / "deep" / "folder"
    assert demo.main(["--epochs", "3", "--snippet", "2", "--seed", "5", "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "SRN",
        "LSTM",
        "CW-RNN",
        "1024",
        "1021",
        "980",
        "0.46",
        "0.04",
        "0.007",
        "seed 5",
        "2 of 5",
        "3 epochs",
    ):
        assert text in printed
    assert str(out / "demo.png") in printed
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")

    record = json.loads((out / "demo.json").read_text())
    settings = record["settings"]
    assert (settings["snippet"], settings["epochs"], settings["seed"]) == (2, 3, 5)
    assert settings["name"] == music.names()[1]
    target = music.load(settings["name"])
    assert record["target"] == target.tolist()
    assert {run["method"]: run["parameters"] for run in record["runs"]} == {"srn": 1024, "lstm": 1021, "cw": 980}
    for run in record["runs"]:
        assert not run["diverged"]
        assert run["epochs"] == 3 == len(run["losses"]) - 1
        untrained = build(run["method"], run["hidden_size"], seed=5)(torch.zeros(320, 1, 0)).detach().numpy()[:, 0, 0]
        assert run["losses"][0] == pytest.approx(0.5 * np.square(untrained - target).sum(), rel=1e-5)
        assert run["nmse"] == pytest.approx(training.nmse(np.array(run["output"]), target))


def test_demo_shows_what_diverged(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(training.LEARNING_RATES, "srn", 1e6)
    assert demo.main(["--epochs", "20", "--out", str(tmp_path)]) == 0
    assert "SRN diverged" in capsys.readouterr().out
    runs = {run["method"]: run for run in json.loads((tmp_path / "demo.json").read_text())["runs"]}
    assert (runs["srn"]["diverged"], runs["srn"]["nmse"], runs["srn"]["losses"][-1]) == (True, None, None)
    assert runs["srn"]["epochs"] < 20
    assert not runs["cw"]["diverged"]
    assert (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--snippet", "9"], "--snippet: expected a whole number from 1 to 5, got '9'"),
        (["--snippet", "0"], "--snippet: expected a whole number from 1 to 5, got '0'"),
        (["--epochs", "0"], "--epochs: expected a whole number of at least 1, got '0'"),
        (["--epochs", "many"], "--epochs: expected a whole number of at least 1, got 'many'"),
        (["--seed=-1"], "--seed: expected a whole number from 0 to 9223372036854775807, got '-1'"),
        (["--sneaky"], "unrecognized arguments: --sneaky"),
    ],
)
def test_demo_refuses(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_demo_refuses_a_folder_that_cannot_be(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--out", str(file / "out")])
    assert stopped.value.code == 2
    assert "--out: cannot make the folder" in capsys.readouterr().err


def test_demo_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_demo_names_the_extra_that_is_missing(tmp_path, capsys, monkeypatch):
    # None in sys.modules makes the import fail as if the package were not there
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert "pip install 'cwrnn[experiments]'" in capsys.readouterr().err
