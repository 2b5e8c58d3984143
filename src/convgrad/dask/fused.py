"""Layers of whole blocks, which Dask fuses with what reads or makes the blocks, so that none of them is moved.

A task of its own for each block of each operand is run by any worker; of two operands, about half the blocks then move
to where the other is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.blockwise import Blockwise, BlockwiseDepDict, blockwise
from numpy.typing import NDArray

from convgrad.dask.tasks import Cut
from convgrad.spec.operators import Tensor

Array = NDArray[Any]
BATCHED = ("src", "dst")  # tensors of which each image is a position of the first axis


@dataclass(frozen=True)
class OnCuts:
    """A task that reads but a part of some blocks, as where no tap meets the rest."""

    task: Callable[..., Any]
    cuts: tuple[Cut | None, ...]

    def __call__(self, *blocks: Array) -> Any:
        """Call it."""
        return self.task(*(cut(block) if cut else block for cut, block in zip(self.cuts, blocks, strict=True)))


def are_blocks(operands: Mapping[Tensor, Any], images: Sequence[range]) -> bool:
    """Return whether runs of images, which make the batch up, are the blocks of operands that nothing else cuts."""
    batch = tuple(map(len, images))
    return all(
        array.chunks[0] == (batch if tensor in BATCHED else array.shape[:1]) and set(array.numblocks[1:]) <= {1}
        for tensor, array in operands.items()
    )


def beside(name: str, arrays: Sequence[Any]) -> Blockwise:
    """Return the layer whose key (``name``, index) is the tuple of the blocks of that index of some arrays."""
    axes = tuple(range(arrays[0].ndim))
    pairs = [one for array in arrays for one in (array.name, axes)]
    return blockwise(_beside, name, axes, *pairs, numblocks={array.name: array.numblocks for array in arrays})


def _beside(*blocks: Array) -> tuple[Array, ...]:
    return blocks


def on_blocks(name: str, rank: int, tasks: Sequence[Callable[..., Any]], operands: Mapping[Tensor, Any]) -> Blockwise:
    """Return the layer whose key (``name``, n, 0, ...), of ``rank`` numbers, is task n called with the blocks n.

    The numbers of blocks along all axes but the batch's are 1: one index stands for any of them.
    """
    each = BlockwiseDepDict({(n,): task for n, task in enumerate(tasks)}, numblocks=(len(tasks),))
    indices = tuple(range(rank))
    pairs: list[Any] = [each, indices[:1]]
    for tensor, array in operands.items():
        first = 0 if tensor in BATCHED else 1
        pairs += [array.name, (first, *[1] * (array.ndim - 1))]
    numblocks = {array.name: array.numblocks for array in operands.values()}
    return blockwise(operator.call, name, indices, *pairs, numblocks=numblocks, new_axes={n: 1 for n in indices[2:]})
