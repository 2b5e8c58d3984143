"""Layers of tasks on whole blocks. Dask fuses them with the layers that read or compute the blocks.

So no block is moved between workers. Without fusion, Dask may run the task of a block on any worker, and about half of
the blocks of two operands are moved.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.blockwise import Blockwise, BlockwiseDepDict, blockwise

from convgrad.array_types import Array
from convgrad.dask.tasks import CopyTask
from convgrad.spec.operators import Tensor

BATCHED = ("src", "dst")  # tensors whose first axis is the batch


@dataclass(frozen=True)
class OnCuts:
    """A task that reads only a part of some blocks, for example because no tap reads the remainder."""

    task: Callable[..., object]
    cuts: tuple[CopyTask | None, ...]

    def __call__(self, *blocks: Array) -> object:
        """Cut the blocks and call the task."""
        return self.task(*(cut(block) if cut else block for cut, block in zip(self.cuts, blocks, strict=True)))


def are_blocks(operands: Mapping[Tensor, Any], images: Sequence[range]) -> bool:
    """Return whether the operands are cut into exactly these ranges of images, and along no other axis."""
    batch = tuple(map(len, images))
    return all(
        array.chunks[0] == (batch if tensor in BATCHED else array.shape[:1]) and set(array.numblocks[1:]) <= {1}
        for tensor, array in operands.items()
    )


def beside(name: str, arrays: Sequence[Any]) -> Blockwise:
    """Return the layer whose value at the key (``name``, *index) is the tuple of all arrays' blocks with this index."""
    axes = tuple(range(arrays[0].ndim))
    pairs = [argument for array in arrays for argument in (array.name, axes)]
    return blockwise(_beside, name, axes, *pairs, numblocks={array.name: array.numblocks for array in arrays})


def _beside(*blocks: Array) -> tuple[Array, ...]:
    return blocks


def on_blocks(
    name: str, rank: int, tasks: Sequence[Callable[..., object]], operands: Mapping[Tensor, Any]
) -> Blockwise:
    """Return the layer whose value at the key (``name``, n, 0, ...) is the result of task n on each operand's block n.

    A key has ``rank`` numbers after the name. All axes except the batch have one block, so one index serves for them.
    """
    tasks_by_number = BlockwiseDepDict({(n,): task for n, task in enumerate(tasks)}, numblocks=(len(tasks),))
    indices = tuple(range(rank))
    pairs: list[Any] = [tasks_by_number, indices[:1]]
    for tensor, array in operands.items():
        first = 0 if tensor in BATCHED else 1
        pairs += [array.name, (first, *[1] * (array.ndim - 1))]
    numblocks = {array.name: array.numblocks for array in operands.values()}
    return blockwise(operator.call, name, indices, *pairs, numblocks=numblocks, new_axes={n: 1 for n in indices[2:]})
