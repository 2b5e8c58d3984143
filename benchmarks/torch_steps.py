"""Measure whole training steps of nine networks: PyTorch's convolutions, ours, ours on our own threads, and by tiles.

PYTHONPATH=src python benchmarks/torch_steps.py -o benchmarks/results/torch_steps.csv
PYTHONPATH=src python benchmarks/torch_steps.py --threads 1 -o steps.csv
PYTHONPATH=src python benchmarks/torch_steps.py --table benchmarks/results/torch_steps.csv
PYTHONPATH=src python benchmarks/torch_steps.py --first -o benchmarks/results/torch_first_steps.csv

Steps take turns in one process: forward, backward, SGD. A row has the medians of the steps' times, and of the ratios of
PyTorch's step to the neighbouring step of each other. ``--first`` measures instead, in new processes, how much longer
the first step takes than the second: PyTorch's, ours with an empty cache directory, and ours with that of the run
before. ``--table`` prints the rows of a file as Markdown.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory

import torch
from rows import asked, write_rows
from torch import nn
from torch_networks import NETWORKS, Network

import convgrad.torch
from convgrad.cli.bench.measure import FmaPeak
from convgrad.host import cpu_model

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
OURS = ("convgrad", "own_threads", "max_error_64")


class Step:
    """A network ready to train on a batch."""

    def __init__(self, model: nn.Module, batch: torch.Tensor) -> None:
        self.model, self.batch = model, batch
        self.optimiser = torch.optim.SGD(model.parameters(), 1e-4)

    def seconds(self) -> float:
        """Return how long a training step takes."""
        begin = time.perf_counter()
        self.optimiser.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimiser.step()
        return time.perf_counter() - begin


def made(network: Network, form: str) -> tuple[nn.Module, torch.Tensor]:
    """Return a network and a batch in a memory format."""
    torch.manual_seed(0)
    model, batch = network.make(), torch.randn(network.batch)
    return model.to(memory_format=FORMATS[form]), formatted(batch, form)


def formatted(batch: torch.Tensor, form: str) -> torch.Tensor:
    """Return a batch in a memory format, or as it is if it has one spatial axis, because PyTorch has none for it."""
    return batch.to(memory_format=FORMATS[form]) if batch.dim() == 4 else batch


def measured(network: Network, form: str, threads: int, rounds: int) -> dict[str, float]:
    """Return the medians of rounds in which each takes a step."""
    model, batch = made(network, form)
    steps = {
        "torch": Step(model, batch),
        "convgrad": Step(convgrad.torch.reproducible(copy.deepcopy(model)), batch),
        "own_threads": Step(convgrad.torch.reproducible(copy.deepcopy(model)), batch),
        "max_error_64": Step(convgrad.torch.reproducible(copy.deepcopy(model), max_error=64), batch),
    }

    def one(name: str) -> float:
        with convgrad.threads(threads, pool="own" if name == "own_threads" else None):
            return steps[name].seconds()

    for name in (*steps, *steps):
        one(name)
    peak = FmaPeak(threads, "f32")
    taken = [{name: one(name) for name in steps} | {"peak": peak()} for _ in range(rounds)]
    row = {"fma_gflops": round(median(each["peak"] for each in taken), 1)}
    row |= {f"{name}_ms": round(1e3 * median(each[name] for each in taken), 1) for name in steps}
    return row | {f"{name}_ratio": round(median(each["torch"] / each[name] for each in taken), 3) for name in OURS}


def table(path: Path) -> str:
    """Return the rows of a file as Markdown, and the geometric means of their ratios."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| network | memory format | PyTorch, ms | convgrad | on its own threads | max_error=64 |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = " | ".join(f"{float(row[f'{name}_ratio']):.2f}" for name in OURS)
        lines.append(f"| {row['network']} | {row['format']} | {float(row['torch_ms']):.0f} | {ratios} |")
    for form in FORMATS:
        some = [row for row in rows if row["format"] == form]
        means = " | ".join(f"{geometric_mean(float(row[f'{name}_ratio']) for row in some):.2f}" for name in OURS)
        lines.append(f"| geometric mean | {form} | | {means} |")
    return "\n".join(lines)


def first(name: str, whose: str) -> None:
    """Print the seconds of the first and second step of a new process, after one of PyTorch's."""
    model, batch = made(NETWORKS[name], "contiguous")
    plain = Step(copy.deepcopy(model), batch)
    if whose == "convgrad":
        plain.seconds()  # what PyTorch itself sets up at first is not ours
        step = Step(convgrad.torch.reproducible(model), batch)
    else:
        step = plain
    seconds = [step.seconds() for _ in range(4)]
    print(json.dumps([seconds[0], min(seconds[1:])]))


def first_steps(name: str) -> dict[str, float]:
    """Return by how much the first step takes longer: PyTorch's, and ours with an empty and a filled cache."""
    with TemporaryDirectory() as folder:
        runs = {"torch": "torch", "cold": "convgrad", "warm": "convgrad"}
        found = {}
        for run, whose in runs.items():
            command = [sys.executable, __file__, "--one", name, whose]
            environment = {**os.environ, "CONVGRAD_CACHE_DIR": folder}
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            begin, then = json.loads(done.stdout)
            found |= {f"{run}_first_s": round(begin, 3), f"{run}_second_s": round(then, 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--first", action="store_true", help="measure first steps of new processes")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "WHOSE"), help="print a first step of this process")
    parser.add_argument("--table", type=Path, help="print the rows of such a file as Markdown, and measure nothing")
    options = asked(parser)
    if options.table:
        print(table(options.table))
        return
    torch.set_num_threads(options.threads)
    if options.one:
        first(*options.one)
        return
    rows = []
    machine = {"threads": options.threads, "torch": torch.__version__, "processor": cpu_model()}
    for name in options.networks:
        for form in ("contiguous",) if options.first else options.formats:
            if options.first:
                found = first_steps(name)
            else:
                found = measured(NETWORKS[name], form, options.threads, options.rounds)
            rows.append({"network": name, "format": form, **found, **machine})
            print(rows[-1], flush=True)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
