"""Measure training steps inside ``same_bits()``, compared with PyTorch and with ``reproducible(model, linear=True)``.

PYTHONPATH=src python benchmarks/step_times.py -o benchmarks/results/step_times.csv
PYTHONPATH=src python benchmarks/step_times.py --networks efficientnet_b0 convnext_t -o FILE
PYTHONPATH=src python benchmarks/step_times.py --memory -o benchmarks/results/step_memory.csv
PYTHONPATH=src python benchmarks/step_times.py --table benchmarks/results/step_times.csv

The variants take turns in one process, two steps each: forward, loss, backward, SGD with momentum. A row has the
medians of the second steps' times, and of the ratios of neighbouring variants. ``--memory`` measures the peaks of new
processes that take two steps, in MiB.
"""

from __future__ import annotations

import argparse
import copy
import csv
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from rows import asked, write_rows
from step_bits import NAMES, OPTIMIZERS, loss_of
from torch import nn
from torch_networks import NETWORKS
from torch_steps import FORMATS, made

import convgrad.torch
from convgrad.cli.bench.measure import FmaPeak
from convgrad.host import cpu_model

VARIANTS = ("torch", "reproducible", "same_bits")


class Step:
    """A network that trains on a batch, in one of the variants."""

    def __init__(self, name: str, variant: str, model: nn.Module, batch: torch.Tensor) -> None:
        self.name, self.variant, self.batch = name, variant, batch
        self.model = convgrad.torch.reproducible(model, linear=True) if variant == "reproducible" else model
        self.rule = OPTIMIZERS["sgd"](self.model.parameters())

    def seconds(self) -> float:
        """Return the time of the second of two training steps, because a loop enters `same_bits` once."""
        with convgrad.torch.same_bits() if self.variant == "same_bits" else nullcontext():
            self.take()
            begin = time.perf_counter()
            self.take()
            return time.perf_counter() - begin

    def take(self) -> None:
        """Take a training step."""
        self.rule.zero_grad()
        loss_of(self.name, self.model(self.batch)).backward()
        self.rule.step()


def measured(name: str, form: str, threads: int, rounds: int) -> dict[str, float]:
    """Return the medians of rounds in which each variant takes a step."""
    model, batch = made(NETWORKS[name], form)
    steps = {variant: Step(name, variant, copy.deepcopy(model), batch) for variant in VARIANTS}
    for step in steps.values():
        step.seconds()
    peak = FmaPeak(threads, "f32")
    taken = [{variant: step.seconds() for variant, step in steps.items()} | {"peak": peak()} for _ in range(rounds)]
    row = {"fma_gflops": round(median(each["peak"] for each in taken), 1)}
    row |= {f"{variant}_ms": round(1e3 * median(each[variant] for each in taken), 1) for variant in VARIANTS}
    row["to_torch"] = round(median(each["same_bits"] / each["torch"] for each in taken), 3)
    row["to_reproducible"] = round(median(each["same_bits"] / each["reproducible"] for each in taken), 3)
    return row


def _peak_mib() -> int:
    """Return the peak memory of this process. ``ru_maxrss`` would include that of the process that started it."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) >> 10


def peak_mib(name: str, form: str, threads: int, variant: str) -> int:
    """Return the peak memory of a new process that takes two steps."""
    command = [sys.executable, __file__, "--one", name, form, variant, "--threads", str(threads)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.splitlines()[-1])


def table(path: Path) -> str:
    """Return the rows of a file as Markdown, and the geometric means of their ratios."""
    with path.open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    lines = [
        "| network | memory format | PyTorch, ms | time / PyTorch's | time / that of `reproducible` |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = f"{float(row['to_torch']):.2f} | {float(row['to_reproducible']):.2f}"
        lines.append(f"| {row['network']} | {row['format']} | {float(row['torch_ms']):.0f} | {ratios} |")
    for form in FORMATS:
        some = [row for row in rows if row["format"] == form]
        means = [geometric_mean(float(row[name]) for row in some) for name in ("to_torch", "to_reproducible")]
        lines.append(f"| geometric mean | {form} | | {means[0]:.2f} | {means[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", nargs="*", default=list(NAMES), choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--memory", action="store_true", help="measure peaks of memory instead of times")
    parser.add_argument("--one", nargs=3, metavar=("NAME", "FORMAT", "VARIANT"), help="print the peak memory")
    parser.add_argument("--table", type=Path, help="print the rows of such a file as Markdown, and measure nothing")
    options = asked(parser)
    if options.table:
        print(table(options.table))
        return
    torch.set_num_threads(options.threads)
    if options.one:
        name, form, variant = options.one
        step = Step(name, variant, *made(NETWORKS[name], form))
        step.seconds()
        print(_peak_mib())
        return
    rows: list[dict[str, Any]] = []
    machine = {"threads": options.threads, "torch": torch.__version__, "processor": cpu_model()}
    for name in options.networks:
        for form in options.formats:
            if options.memory:
                found: dict[str, float] = {
                    f"{variant}_mib": peak_mib(name, form, options.threads, variant) for variant in VARIANTS
                }
            else:
                found = measured(name, form, options.threads, options.rounds)
            rows.append({"network": name, "format": form, **found, **machine})
            print(rows[-1], flush=True)
            if options.output:
                write_rows(options.output, rows)


if __name__ == "__main__":
    main()
