"""Whether torch allows tf32 for float32 on a CUDA device: each operator has a switch."""

import torch

# from torch 2.9 on; the older switch of all of cuDNN raises where those of its operators differ
_read_switch = getattr(torch._C, "_get_fp32_precision_getter", None)


def allows_tf32(operator: str) -> bool:
    """True if torch allows tf32 to recurrent layers ("rnn") or to matrix products ("matmul")."""
    if _read_switch is None:
        old = torch.backends.cudnn if operator == "rnn" else torch.backends.cuda.matmul
        return bool(old.allow_tf32)
    return bool(_read_switch("cuda", operator) == "tf32")
