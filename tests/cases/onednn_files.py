"""oneDNN's graphs and benchdnn's lists of convolutions, all of them read: how many, how many whole, what is refused.

``python -m tests.cases.onednn_files ONEDNN`` takes the folder of an oneDNN checkout and prints a line for each refusal,
then the counts. The exit code is 0 where every list is read whole and no graph but the three inconsistent ones is
refused, and 1 elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from convgrad import cases
from convgrad.errors import ConvgradError, GraphError
from convgrad.graph import read

INPUTS = Path("tests", "benchdnn", "inputs")
DRIVERS = ("conv", "deconv")
# Graphs whose tensors or ports contradict each other.
INCONSISTENT = {"sdpa-compressed-k-int8-gs32.json", "int8_maxpool_add_mul_fusion.json", "int8_softmax_add.json"}


@dataclass
class Tally:
    """What was read, and what was not."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    inconsistent: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return "\n".join(f"{number:9,} {what}" for what, number in self.counts.items())

    @property
    def right(self) -> bool:
        """Whether all is read but the inconsistent graphs, of which those that are there are refused."""
        return not self.refused and self.counts["graphs refused"] == len(self.inconsistent)


def graphs(onednn: Path, tally: Tally) -> Iterator[str]:
    """Read every graph; yield the refusals."""
    for path in sorted((onednn / INPUTS / "graph").rglob("*.json")):
        tally.counts["graphs"] += 1
        if path.name in INCONSISTENT:
            tally.inconsistent.add(path.name)
        try:
            read(path)
        except GraphError as error:
            tally.counts["graphs refused"] += 1
            if path.name not in INCONSISTENT:
                tally.refused.append(path.name)
            yield str(error)


def lists(onednn: Path, tally: Tally) -> Iterator[str]:
    """Read every list, harness and option file of both drivers; yield the refusals."""
    for driver in DRIVERS:
        for path in sorted(p for p in (onednn / INPUTS / driver).iterdir() if p.is_file()):
            wrong: list[ConvgradError] = []
            for case in cases.read(f"--{driver} --batch={path}", refused=wrong.append):
                tally.counts["cases"] += 1
                tally.counts["cases that nobody serves here"] += bool(case.unsupported)
            tally.counts["lists"] += 1
            tally.counts["lists read whole"] += not wrong
            tally.counts["words and lines refused"] += len(wrong)
            tally.refused += map(str, wrong)
            yield from map(str, wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Read all graphs and lists of convolutions of an oneDNN checkout.")
    parser.add_argument("onednn", metavar="ONEDNN", type=Path, help="the folder of the checkout")
    options = parser.parse_args(arguments)
    if not all((options.onednn / INPUTS / name).is_dir() for name in (*DRIVERS, "graph")):
        print(f"skipped: {options.onednn / INPUTS} must have the folders {', '.join(DRIVERS)}, graph of oneDNN")
        return 0
    tally = Tally()
    for reader in (graphs, lists):
        for error in reader(options.onednn, tally):
            print(f"refused: {error}", flush=True)
    print(tally)
    return 0 if tally.right else 1


if __name__ == "__main__":
    sys.exit(main())
