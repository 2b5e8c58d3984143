"""Count the different fingerprints of training, over threads, instruction sets, memory formats and optimizers.

PYTHONPATH=src python benchmarks/step_bits.py -o benchmarks/results/step_bits.csv
PYTHONPATH=src python benchmarks/step_bits.py --table benchmarks/results/step_bits.csv

Each process trains one network with one setting of ``ATEN_CPU_CAPABILITY`` and ``CONVGRAD_MAX_ISA``, and each number of
threads and memory format in turn. A row has the fingerprint of the parameters and buffers after the steps.
``--mode reproducible`` trains with ``reproducible(model, linear=True)`` instead, and ``--mode plain`` with PyTorch.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import torch
from rows import asked, write_rows
from torch import nn
from torch.nn import functional
from torch_networks import NETWORKS
from torch_steps import FORMATS, formatted

import convgrad.torch
from convgrad.host import cpu_model

NAMES = (
    "resnet18", "resnet50", "vgg11", "mobilenet_v2", "mobilenet_v3", "dcgan", "unet", "wide_resnet", "efficientnet_b0",
    "convnext_t", "diffusion", "audio", "vit", "speech",
)  # fmt: skip
SMALL = {
    "dcgan": (8, 100, 1, 1),
    "wide_resnet": (4, 3, 32, 32),
    "vgg11": (2, 3, 224, 224),
    "diffusion": (2, 3, 32, 32),
    "audio": (2, 1, 8000),
    "speech": (2, 1, 8000),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9, weight_decay=1e-4),
    "adam": lambda parameters: torch.optim.Adam(parameters, 1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}
CAPABILITIES, ISAS, THREADS = ("default", "avx2", "avx512"), ("avx512", "avx2"), (1, 2, 3)


def loss_of(name: str, output: torch.Tensor) -> torch.Tensor:
    """Return the loss that the network is trained with: labels depend on positions alone."""
    if name == "dcgan":
        return functional.binary_cross_entropy_with_logits(output, torch.ones_like(output))
    if name == "speech":
        time, batch, letters = output.shape
        text = (1 + torch.arange(5 * batch) % (letters - 1)).reshape(batch, 5)
        return functional.ctc_loss(output.log_softmax(2), text, [time] * batch, [5] * batch)
    shape = output.shape[:1] + output.shape[2:]
    labels = torch.arange(shape.numel()).reshape(shape) % output.shape[1]
    return functional.cross_entropy(output, labels)


def trained(name: str, optimizer: str, form: str, steps: int, mode: str) -> str:
    """Return the fingerprint of a network after training steps."""
    torch.manual_seed(0)
    shape = SMALL.get(name, (2, 3, 96, 96))
    model = NETWORKS[name].make().to(memory_format=FORMATS[form])
    if mode == "reproducible":
        convgrad.torch.reproducible(model, linear=True)
    batch = formatted(torch.rand(shape), form)
    rule = OPTIMIZERS[optimizer](model.parameters())
    for _ in range(steps):
        rule.zero_grad()
        loss_of(name, model(batch)).backward()
        if optimizer == "adamw":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
    return convgrad.torch.fingerprint(model)


def one_process(name: str, optimizers: list[str], threads: list[int], steps: int, mode: str) -> None:
    """Print the fingerprints of this process as JSON."""
    for optimizer, number, form in product(optimizers, threads, FORMATS):
        torch.set_num_threads(number)
        with convgrad.torch.same_bits() if mode == "same_bits" else nullcontext():
            found = trained(name, optimizer, form, steps, mode)
        row = {"network": name, "optimizer": optimizer, "threads": number, "format": form, "fingerprint": found[:16]}
        print(json.dumps(row), flush=True)


def table(path: Path) -> str:
    """Return the number of fingerprints per network and optimizer as Markdown."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["network"], row["optimizer"]].append(row["fingerprint"])
    lines = ["| network | optimizer | settings | fingerprints |", "|---|---|---|---|"]
    lines += [f"| {name} | {rule} | {len(each)} | {len(set(each))} |" for (name, rule), each in found.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="*", default=list(NAMES), choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--optimizers", nargs="*", default=list(OPTIMIZERS), choices=list(OPTIMIZERS), metavar="NAME")
    parser.add_argument("--threads", type=int, nargs="*", default=list(THREADS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--mode", default="same_bits", choices=("same_bits", "reproducible", "plain"))
    parser.add_argument("--one", action="store_true", help="train in this process, and print lines of JSON")
    parser.add_argument("--table", type=Path, help="print the counts of such a file as Markdown, and train nothing")
    options = asked(parser)
    if options.table:
        print(table(options.table))
        return
    if options.one:
        one_process(options.networks[0], options.optimizers, options.threads, options.steps, options.mode)
        return
    rows = []
    for name, capability, isa in product(options.networks, CAPABILITIES, ISAS):
        command = [sys.executable, __file__, "--one", "--networks", name, "--steps", str(options.steps)]
        command += ["--optimizers", *options.optimizers, "--threads", *map(str, options.threads)]
        command += ["--mode", options.mode]
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "CONVGRAD_MAX_ISA": isa}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        found = {"aten": capability, "isa": isa, "torch": torch.__version__, "processor": cpu_model()}
        rows += [json.loads(line) | found for line in done.stdout.splitlines()]
        print(name, capability, isa, sorted({row["fingerprint"] for row in rows if row["network"] == name}), flush=True)
        if options.output:
            write_rows(options.output, rows)


if __name__ == "__main__":
    main()
