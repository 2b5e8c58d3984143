"""Planted defects of the arithmetic of weight gradients: what the verdict says of each, by terms, data and type.

``python -m tests.verify.verdict_power`` prints a table; ``--terms 200,2000`` takes those columns only, ``--defects NAME
...`` those rows, ``--layer`` the gradient of a layer of 8x56x56x64 and 3x3 taps instead. A cell has a letter for
normal, ReLU and positive data: W wrong, D degraded, U undecided, - ok; small where the defect has no name, ! where it
has another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from convgrad.formats import BF16, F32
from convgrad.verify.check import verdict_on
from convgrad.verify.declared import declared
from convgrad.verify.reference import certify
from tests.verify.planted import ARITHMETIC
from tests.verify.plants import plant_of

KINDS = ("normal", "relu", "positive")
LINES = {
    200: "BWD_W f32 NXC mb8ic48ih5iw5oc48oh5ow5kh1kw1",
    2_000: "BWD_W f32 NXC mb8ic48ih10iw25oc48oh10ow25kh1kw1",
    25_088: "BWD_W f32 NXC mb8ic48ih56oc48oh56kh1",
    200_000: "BWD_W f32 NXC mb8ic24ih100iw250oc24oh100ow250kh1kw1",
}
LAYER = "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1"
LETTERS = {"wrong": "W", "degraded": "D", "undecided": "U", "ok": "-"}
FORMATS = (F32, BF16)
NARROW = {"result rounded to f16": "output rounded twice"}  # other names of a result that is rounded further


def rows_of(lines: Sequence[str], names: Sequence[str]) -> dict[str, dict[tuple[str, str], str]]:
    """Return a letter per kind of data, by defect, line and type of result."""
    table: dict[str, dict[tuple[str, str], str]] = {name: {} for name in names}
    for line in lines:
        for kind in KINDS:
            one = plant_of(line, kind)
            prepared = one.prepared()
            reference, how = certify(prepared.problem, prepared.operands), declared(prepared.op.name, F32)
            for name in names:
                wanted, planted = ARITHMETIC[name]
                sums = planted(one)
                for fmt in FORMATS:
                    letter = " "
                    if sums is not None:
                        got = np.asarray(sums).astype(np.float32).astype(fmt.dtype)
                        verdict = verdict_on(got, prepared, how, None, reference)
                        shown = [f"{e.statistic} {e.value:.3g}" for e in verdict.evidence[:3]]
                        print(f"{line} {kind} {fmt} {name}: {verdict}; {shown}", file=sys.stderr)
                        letter = LETTERS[verdict.outcome]
                        said = " ".join(f"{defect.name} {defect.detail}" for defect in verdict.found)
                        if not any(one in said for one in (*wanted.split("|"), NARROW.get(name, wanted))):
                            letter = letter.lower() + "!" * bool(verdict.found)
                    table[name][line, fmt.name] = table[name].get((line, fmt.name), "") + letter
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge planted defects, and print what is seen of them.")
    parser.add_argument("--terms", default=",".join(map(str, LINES)))
    parser.add_argument("--layer", action="store_true")
    parser.add_argument("--defects", nargs="*", default=list(ARITHMETIC), choices=list(ARITHMETIC), metavar="NAME")
    options = parser.parse_args(arguments)
    lines = [LAYER] if options.layer else [LINES[int(terms)] for terms in options.terms.split(",")]
    table = rows_of(lines, options.defects)
    columns = [(line, fmt.name) for fmt in FORMATS for line in lines]
    print("| defect | " + " | ".join(f"{fmt} {line.split()[-1]}" for line, fmt in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for name, cells in table.items():
        print(f"| {name} | " + " | ".join(cells[column] for column in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
