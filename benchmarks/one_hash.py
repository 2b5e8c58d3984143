"""Train the network of docs/same_hash.md with PyTorch alone and with `same_bits()`, and list fingerprints by settings.

PYTHONPATH=src python benchmarks/one_hash.py -o benchmarks/results/one_hash.csv

A row has the fingerprints of both trainings for one number of threads, memory format and ``ATEN_CPU_CAPABILITY``, each
value of which has its own process. To run these processes in an emulator, pass its command line, for example:

    --python "qemu-x86_64 -cpu Haswell PYTHON" --processor "Intel Haswell" --capabilities avx2
    --python "qemu-aarch64 -L ROOT -E PYTHONPATH=src:SITE ROOT/usr/bin/python3.11" --processor Arm ...

PYTHON is the executable, not a link to it. ``tests/hashes.py`` describes ROOT and SITE. If two fingerprints of
`same_bits()` differ, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from itertools import product

import torch
from rows import asked, write_rows
from torch import nn

import convgrad.torch as ct
from convgrad.host import cpu_model

CAPABILITIES, THREADS = ("avx512", "avx2", "default"), (1, 2, 3)
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def train(memory_format=torch.contiguous_format):
    torch.manual_seed(0)
    features = nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(32, 10))
    model = model.to(memory_format=memory_format)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images = torch.rand(16, 3, 32, 32).to(memory_format=memory_format)
    labels = torch.arange(16) % 10
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return ct.fingerprint(model)[:16]


def one_process(threads: list[int]) -> None:
    """Print the rows of this process as JSON."""
    for number, (name, memory_format) in product(threads, FORMATS.items()):
        torch.set_num_threads(number)
        row = {"threads": number, "format": name, "plain": train(memory_format)}
        with ct.same_bits():
            row["same_bits"] = train(memory_format)
        print(json.dumps(row | {"torch": torch.__version__}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the command line that starts Python")
    parser.add_argument("--processor", default=cpu_model(), help="the name of the processor, or of the emulated one")
    parser.add_argument("--capabilities", nargs="*", default=list(CAPABILITIES), choices=CAPABILITIES)
    parser.add_argument("--threads", type=int, nargs="*", default=list(THREADS))
    parser.add_argument("--one", action="store_true", help="train in this process, and print lines of JSON")
    options = asked(parser)
    if options.one:
        one_process(options.threads)
        return
    rows = []
    for capability in options.capabilities:
        command = [*shlex.split(options.python), __file__, "--one", "--threads", *map(str, options.threads)]
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        if capability == "avx2":
            environment["CONVGRAD_MAX_ISA"] = "avx2"
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        setting = {"processor": options.processor, "aten": capability}
        rows += [setting | json.loads(line) for line in done.stdout.splitlines()]
        print(*rows[-len(options.threads) * len(FORMATS) :], sep="\n", flush=True)
    if options.output:
        write_rows(options.output, rows)
    sys.exit(len({row["same_bits"] for row in rows}) != 1)


if __name__ == "__main__":
    main()
