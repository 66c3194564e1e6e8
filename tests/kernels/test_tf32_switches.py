"""Which operators may use tf32, by torch's switches of now and of before 2.9."""

import pytest
import torch

from cwrnn.kernels import precision
from cwrnn.kernels.precision import allows_tf32


@pytest.mark.parametrize("is_old", [False, True], ids=["switch of each operator", "older switches"])
@pytest.mark.parametrize("in_layers", [False, True])
@pytest.mark.parametrize("in_products", [False, True])
def test_each_operator_has_its_switch(monkeypatch, is_old, in_layers, in_products):
    if is_old:
        monkeypatch.setattr(precision, "_read_switch", None)
    usual = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = in_products
    try:
        with torch.backends.cudnn.flags(allow_tf32=in_layers):
            assert (allows_tf32("rnn"), allows_tf32("matmul")) == (in_layers, in_products)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = usual
