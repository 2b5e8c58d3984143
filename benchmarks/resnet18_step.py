"""Measure a training step of examples/resnet18_reproducible.py by whose convolutions it has: PyTorch's or convgrad's.

PYTHONPATH=src:examples python benchmarks/resnet18_step.py -o benchmarks/results/resnet18_step.csv

Steps of both take turns in one process; a row has the medians of a step's time in ms, and of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import copy
import time
from statistics import median

import resnet18_reproducible as example
import torch
from rows import asked, write_rows

import convgrad.torch
from convgrad.host import cpu_model


def milliseconds(model: torch.nn.Module) -> float:
    begin = time.perf_counter()
    example.train(model, 1)
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--steps", type=int, default=15)
    options = asked(parser)
    rows = []
    for width in options.widths:
        for threads in options.threads:
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            plain = example.ResNet18(width)
            ours = convgrad.torch.reproducible(copy.deepcopy(plain))
            milliseconds(plain), milliseconds(ours)
            with convgrad.threads(threads):
                pairs = [(milliseconds(ours), milliseconds(plain)) for _ in range(options.steps)]
            times = {
                "convgrad_ms": round(median(mine for mine, _ in pairs), 2),
                "torch_ms": round(median(theirs for _, theirs in pairs), 2),
                "torch_ratio": round(median(theirs / mine for mine, theirs in pairs), 3),
            }
            rows.append({"width": width, "threads": threads, **times, "processor": cpu_model()})
            print(rows[-1])
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
