"""The communication hook: equal weights for 1, 2 and 4 processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import convgrad.torch as ct
from convgrad.errors import InvalidAttributeError
from convgrad.torch.training.processes import combined
from tests.support.places import ROOT

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import convgrad.torch as ct

rank, processes, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1 + rank % 2)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
with ct.same_bits():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8).eval(), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.005)
    model.register_comm_hook(ct.PartsOfBatch(4), ct.join_gradients)
    rule = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(3):
        batch, labels = torch.rand(12, 3, 8, 8), torch.arange(12) % 10
        parts = list(zip(batch.chunk(4), labels.chunk(4)))
        rule.zero_grad()
        share = 4 // processes
        for images, classes in parts[rank * share : (rank + 1) * share]:
            nn.functional.cross_entropy(model(images), classes).backward()
        rule.step()
print(ct.fingerprint(model.module))
"""


def _weights(processes: int, store: Path) -> set[str]:
    """Return the fingerprints of all processes."""
    commands = [[sys.executable, "-c", PROGRAM, str(rank), str(processes), str(store)] for rank in range(processes)]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    found = {child.communicate()[0].strip() for child in children}
    assert not any(child.returncode for child in children)
    return found


@pytest.mark.long
def test_weights_are_equal_for_any_number_of_processes(tmp_path: Path) -> None:
    found = [_weights(processes, tmp_path / str(processes)) for processes in (1, 2, 4)]
    assert len(set.union(*found)) == 1


class _Bucket:
    """A bucket of DistributedDataParallel: the gradients of a weight and of a bias."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, of: list[torch.Tensor]) -> None:
        self._buffer = torch.cat([weight.reshape(-1), bias])
        self._of = of

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._of

    def gradients(self) -> list[torch.Tensor]:
        return [self._buffer[:6].view(2, 3), self._buffer[6:]]


def test_one_process_averages_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four parts are added one after another. A step returns zeros until its last part."""

    def all_gather(to: list[torch.Tensor], part: torch.Tensor) -> None:
        to[0].copy_(part)

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    state, parameters = ct.PartsOfBatch(4), [torch.zeros(2, 3), torch.zeros(2)]
    for _ in range(2):
        parts = [(torch.randn(2, 3), torch.randn(2)) for _ in range(4)]
        results = [ct.join_gradients(state, _Bucket(*part, parameters)).value().clone() for part in parts]
        assert not torch.cat(results[:3]).any()
        first, second, third, fourth = (torch.cat([weight.reshape(-1), bias]) for weight, bias in parts)
        assert torch.equal(results[3], (((first + second) + third) + fourth) / 4)


def test_processes_divide_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    bucket = _Bucket(torch.ones(2, 3), torch.ones(2), [torch.zeros(2, 3), torch.zeros(2)])
    with pytest.raises(InvalidAttributeError, match="3, must divide the 4 parts of a batch"):
        ct.join_gradients(ct.PartsOfBatch(4), bucket)


@pytest.mark.parametrize("parts", [0, -1, 1.5, True, "4"])
def test_parts_are_a_positive_integer(parts: Any) -> None:
    with pytest.raises(InvalidAttributeError, match="parts must be a positive integer"):
        ct.PartsOfBatch(parts)


def test_combined_is_the_tree_of_16() -> None:
    """Neighbours are added in groups of 16, so 17 parts are a sum of 16 and one more."""
    parts = [torch.tensor([2.0**24])] + [torch.tensor([1.0])] * 15 + [torch.tensor([1.0])] * 16
    first = torch.tensor(2.0**24)
    for _ in range(15):
        first = first + 1.0
    assert combined(parts).item() == first.item() + 16.0
    assert str(combined([torch.tensor([-0.0])])) == "tensor([0.])"
