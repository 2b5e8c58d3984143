"""What PyTorch keeps the sums of a bf16 layer in, by trying: on a processor without AVX-512 some are kept in bf16."""

from __future__ import annotations

from functools import cache


@cache
def adds_in_bf16() -> bool:
    """Tell whether the taps of a data gradient are added in bf16: 256 and eight ones are 256 then."""
    import torch  # noqa: PLC0415 - for who has it only

    weights = torch.ones(1, 1, 3, 3).bfloat16()
    weights[0, 0, 0, 0] = 256
    made = torch.nn.functional.conv_transpose2d(torch.ones(1, 1, 5, 5).bfloat16(), weights)
    return float(made[0, 0, 2, 2]) != 264
