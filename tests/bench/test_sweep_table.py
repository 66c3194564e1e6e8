"""The tables of a sweep, from made-up rows."""

import json

import pytest

from cwrnn.bench import sweep_file, sweep_table


def make_row(units, modules, forward, training, *, dtype="bf16", layer="RNN", steps=100):
    """A row whose ratios are the same in both ways of timing; None for a pass without times."""
    row = {"n": units, "modules": modules, "T": steps, "B": 1, "inputs": 64, "layer": layer, "dtype": dtype,
           "backend": "cuda", "error": 1e-3, "note": None}  # fmt: skip
    for name, ratio in (("forward", forward), ("training", training)):
        for way in ("", "_synchronised"):
            row[f"{name}{way}"] = 0.5
            row[f"{name}{way}_{layer.lower()}"] = None if ratio is None else 0.5 * ratio
    return row


ROWS = [
    make_row(32, 1, 0.999, 3.0),
    make_row(32, 1, 2.0, 3.0, steps=1024),
    make_row(32, 8, 4.0, None),
    make_row(64, 1, None, None),
    make_row(32, 1, 1.5, 1.25, dtype="fp32"),
    make_row(32, 1, 1.5, 1.5, layer="GRU"),
]


def write(path, rows):
    path.write_text(json.dumps({"environment": {}, "sweep": rows}))
    return str(path)


def test_there_is_a_table_for_each_cell_and_dtype(tmp_path, capsys):
    files = [write(tmp_path / "1.json", ROWS[:3]), write(tmp_path / "2.json", ROWS[3:])]
    assert sweep_table.main(files) == 0
    out = capsys.readouterr().out
    assert out.count("## ") == 2
    # the worst ratio is rounded down
    table = (
        "RNN, bf16: worst / median\n\n| units | 1 module | 8 modules |\n|---|---|---|\n"
        "| 32 | 0.99 / 2.50 | 4.00 / 4.00 |\n| 64 | - | - |\n"
    )
    assert table in out
    assert "RNN, fp32: worst / median\n\n| units | 1 module |\n|---|---|\n| 32 | 1.25 / 1.38 |\n" in out
    assert "GRU, bf16: worst / median" in out
    assert "1152 lines: 3 timed, 0 that need" in out
    assert "1147 left out" in out
    assert "lines below 1.0: 1, worst first" in out


def test_passes_and_ways_stand_apart(tmp_path, capsys):
    assert sweep_table.main(["--apart", write(tmp_path / "1.json", ROWS[:2])]) == 0
    out = capsys.readouterr().out
    assert (
        "RNN, bf16, forward, back to back: worst / median\n\n| units | 1 module |\n|---|---|\n| 32 | 0.99 / 1.50 |"
        in out
    )
    assert "RNN, bf16, forward+backward, synchronised: worst / median" in out
    assert out.count("| units |") == 4


def test_the_last_file_counts_for_a_line_in_several(tmp_path):
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    write(files[0], ROWS)
    write(files[1], [make_row(32, 1, 5.0, 5.0)])
    rows = sweep_file.read_rows(files)
    assert len(rows) == len(ROWS)
    assert rows[0]["forward_rnn"] == 2.5


@pytest.mark.parametrize(("content", "message"), [
    ("{", "cannot be read as JSON: Expecting property name"),
    ('{"layers": []}', "has no rows of a sweep"),
    ("[]", "has no rows of a sweep"),
    ('{"sweep": [{}]}', "row 1 of the sweep has no layer"),
    (None, "No such file"),
])  # fmt: skip
def test_a_file_without_a_sweep_is_refused(content, message, tmp_path, capsys):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    assert sweep_table.main([str(path)]) == 1
    assert message in capsys.readouterr().err
