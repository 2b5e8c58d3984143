"""Models that processes share: one whose convolutions are ours trains as before, wrapped as PyTorch wraps it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import HANG_S

pytest.importorskip("torch")

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import convgrad.torch

way, store, rank, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
torch.manual_seed(0)
model = convgrad.torch.reproducible(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)))
if way == "sharded":
    mesh = init_device_mesh("cpu", (processes,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
else:
    model = DistributedDataParallel(model)
optimiser, src = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 3, 9, 9)
for _ in range(3):
    optimiser.zero_grad()
    loss = model(src).square().mean()
    loss.backward()
    optimiser.step()
    print(loss.item().hex())
dist.destroy_process_group()
"""


def losses(way: str, store: Path, processes: int) -> list[str]:
    """Return the losses of three steps, which all processes must have alike: each trains on the same data."""
    command = [sys.executable, "-c", PROGRAM, way, str(store)]
    begun = [
        subprocess.Popen(
            [*command, str(rank), str(processes)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(processes)
    ]
    told = [one.communicate(timeout=HANG_S) for one in begun]
    assert [one.returncode for one in begun] == [0] * processes, told
    (first, *others) = [out.split() for out, _ in told]
    assert others == [first] * (processes - 1)
    return first


@pytest.mark.long
def test_processes_train_one_model(tmp_path: Path) -> None:
    """The mean of equal gradients is that gradient, so wrapped and sharded models have the losses of one process."""
    alone = losses("replicated", tmp_path / "one", 1)
    assert len(alone) == 3
    assert losses("replicated", tmp_path / "two", 2) == alone
    assert losses("sharded", tmp_path / "shards", 2) == alone
