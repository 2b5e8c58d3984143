"""Train a compiled model of PyTorch, without convgrad's operators, with code from a cache of another setting.

PYTHONPATH=src python benchmarks/inductor_cache.py -o benchmarks/results/inductor_cache.csv

A first process compiles a network under one ``ATEN_CPU_CAPABILITY`` and fills a cache of torch.compile. A second
process trains the same network under another setting with this cache. A row has the losses of five steps, and the exit
code of the second process, which is below 0 after a crash. It needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import permutations

import torch
from rows import asked, write_rows
from torch import nn

from convgrad.host import cpu_model

CAPABILITIES = ("avx2", "avx512")


def train() -> None:
    """Print the losses of five steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    features = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model)
    images, labels = torch.rand(16, 3, 32, 32), torch.arange(16) % 10
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(images), labels)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.4g}", end=" ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", action="store_true", help="train in this process, and print the losses")
    options = asked(parser)
    if options.one:
        train()
        return
    rows = []
    for order in [(name, name) for name in CAPABILITIES] + list(permutations(CAPABILITIES)):
        with tempfile.TemporaryDirectory() as cache:
            for capability in order:
                environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "ATEN_CPU_CAPABILITY": capability}
                command = [sys.executable, __file__, "--one"]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        row = {"compiled": order[0], "run": order[1], "losses": done.stdout.strip(), "exit": done.returncode}
        rows.append(row | {"torch": torch.__version__, "processor": cpu_model()})
        print(rows[-1], flush=True)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
