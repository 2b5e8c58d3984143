"""What slices and no more, to be read piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convgrad import InvalidAttributeError, scale
from convgrad.scale.call import ScaleOptions, called
from convgrad.scale.cut import Cut
from convgrad.scale.plan import ways

Array = np.ndarray


class Slices:
    """What has a shape, a type and slices, and no more; it counts what it was asked for."""

    def __init__(self, array: Array, chunks: Any = None) -> None:
        self.array, self.shape, self.dtype, self.chunks, self.asked_bytes = array, array.shape, array.dtype, chunks, 0

    def __getitem__(self, region: Any) -> Array:
        assert all(type(one) is slice and one.step is None for one in region)
        self.asked_bytes += self.array[region].nbytes
        return self.array[region].copy()

    def __setitem__(self, region: Any, given: Array) -> None:
        self.array[region] = given


def least_memory(operator: str, *inputs: Any, **options: Any) -> int:
    """Return the least memory that a piece takes, as the error says."""
    with pytest.raises(InvalidAttributeError, match=r"which takes \d+ bytes: .*; got 1 \[M2\]$") as caught:
        scale.plan(operator, *inputs, memory=1, **options)
    return int(str(caught.value).split("which takes ")[1].split(" bytes")[0])


def memories(
    operator: str, *inputs: Any, dtype: Any = None, out: Any = None, accumulate: bool = False, **attributes: Any
) -> dict[Cut, int]:
    """Return the cuts that there are of a call by one thread, each with the least memory that has it."""
    call = called(operator, inputs, attributes, ScaleOptions("1TB", dtype, out, accumulate, 1), to_run=False)
    needed = [
        (cut, max(1, sum(size for _, size in takes)))
        for cut, _, takes in ways(call.problem, call.sources, call.target, 1)
    ]
    found: dict[Cut, int] = {}
    for memory in sorted({least for _, least in needed}):
        found.setdefault(next(cut for cut, least in needed if least <= memory), memory)
    for cut, memory in [*found.items()][:1]:
        options = {"dtype": dtype, "out": out, "accumulate": accumulate} | attributes
        assert scale.plan(operator, *inputs, memory=memory, threads=1, **options).cut == cut
    return found
