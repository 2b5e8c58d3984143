"""A communication hook of DistributedDataParallel that adds gradients in one order for any number of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from convgrad.errors import InvalidAttributeError
from convgrad.spec.check import as_integer
from convgrad.spec.order import FAN_IN

if TYPE_CHECKING:  # builds of PyTorch without processes do not have it
    from torch._C._distributed_c10d import GradBucket


class PartsOfBatch:
    """The state of `join_gradients`: the number of parts of each batch, whatever the number of processes.

    Args:
        parts: The number of parts of a batch. The number of processes must divide it. Each process runs its
            parts one after another, with ``loss.backward()`` for each, then one step of the optimizer.
    """

    def __init__(self, parts: int) -> None:
        number = as_integer(parts)
        if number is None or number < 1:
            raise InvalidAttributeError(f"PartsOfBatch: parts must be a positive integer; got {parts!r:.200}")
        self.parts = number
        # by parameter, because the buckets change after the first step
        self._part_gradients: dict[int, list[Tensor]] = {}

    def add(self, bucket: GradBucket) -> Tensor:
        """Keep the gradients of a part; return zeros, or after the last part the mean over all parts.

        Args:
            bucket: The gradients, a ``torch.distributed.GradBucket``.
        """
        gradients, processes = bucket.gradients(), dist.get_world_size()
        share = self.parts // processes
        if share * processes != self.parts:
            refused = f"the number of processes, {processes}, must divide the {self.parts} parts of a batch"
            raise InvalidAttributeError(f"join_gradients: {refused}")
        part_gradients = [self._part_gradients.setdefault(id(parameter), []) for parameter in bucket.parameters()]
        for parts, gradient in zip(part_gradients, gradients, strict=True):
            parts.append(gradient.flatten().clone())
        if len(part_gradients[0]) < share:
            return bucket.buffer().zero_()
        gathered = [torch.empty(bucket.buffer().shape, dtype=gradients[0].dtype) for _ in range(self.parts)]
        for at in range(share):  # process p has the parts from p * share
            dist.all_gather(gathered[at::share], torch.cat([parts.pop(0) for parts in part_gradients]))
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, mean in zip(gradients, (combined(gathered) / self.parts).split(sizes), strict=True):
            gradient.copy_(mean.reshape(gradient.shape))
        return bucket.buffer()


def combined(parts: list[Tensor]) -> Tensor:
    """Return the sum of tensors by the reduction tree: each node adds up to 16 neighbours in order."""
    while len(parts) > 1:
        parts = [_added(parts[at : at + FAN_IN]) for at in range(0, len(parts), FAN_IN)]
    return parts[0] + 0.0  # removes -0


def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def join_gradients(state: PartsOfBatch, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Average gradients over the parts of a batch, with the same bits for any number of processes.

    Register it with ``model.register_comm_hook(PartsOfBatch(4), join_gradients)``. A batch always has 4 parts then:
    one process runs all of them, and each of 4 processes runs one. A part's gradients are those of its mean loss, and
    the result is their mean.

    Args:
        state: The `PartsOfBatch` that was registered with the hook.
        bucket: The gradients, a ``torch.distributed.GradBucket``.

    Raises:
        InvalidAttributeError: The number of processes does not divide the number of parts.
    """
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(state.add(bucket))
    return future


join_gradients.__annotations__.clear()  # DistributedDataParallel refuses annotations that are text
