"""Planted defects: results computed wrong on purpose, and what the verdict says of each: outcome and name.

``python -m tests.verify.planted`` prints the table, defect by size and type; ``--terms 200 --types f32`` a part of it.
The defects are written anew, on sums of slices of a padded src: nothing is shared with what recognises them. The exit
code is 1 where a defect beyond the bound was not named as planted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from convgrad.verify import Verdict
from tests.verify.planted_defects import DEFECTS
from tests.verify.plants import ROLES, SIZES, TYPES, Plant, plant


def verdict_of(defect: str, p: Plant) -> Verdict | None:
    """Return the verdict on a planted defect; None where a problem cannot have it."""
    planted = DEFECTS[defect][1](p)
    if planted is None:
        return None
    sums, asked = planted if isinstance(planted, tuple) else (planted, p)
    with np.errstate(all="ignore"):
        return asked.call(sums)


def is_named(defect: str, verdict: Verdict) -> bool:
    """Whether the name planted is the one found, or said to fit too."""
    said = [one.name for one in verdict.found] + [one.detail.partition("also fits: ")[2] for one in verdict.found]
    return any(name in one for name in DEFECTS[defect][0].split("|") for one in said)


def verdicts(defect: str, terms: int, dtype: str, roles: Sequence[str]) -> Iterator[tuple[Verdict, float]]:
    """Yield the verdicts on a defect, and the seconds that each took with the making of its result."""
    for role in roles:
        one = plant(role, terms, dtype)
        started = time.perf_counter()
        verdict = verdict_of(defect, one)
        if verdict is not None:
            yield verdict, time.perf_counter() - started


def cell(defect: str, judged: Sequence[Verdict]) -> str:
    """Return what became of a defect in some roles: wrong and named, wrong without its name, or its outcome."""
    words = Counter(_said(one.outcome, is_named(defect, one)) for one in judged)
    return ", ".join(f"{count} {word}" for word, count in words.items()) or "-"


def _said(outcome: str, named: bool) -> str:
    if outcome == "wrong":
        return "named" if named else "no name"
    return f"{outcome} and named" if named else outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge planted defects.")
    parser.add_argument("--terms", type=int, nargs="*", default=SIZES)
    parser.add_argument("--types", nargs="*", default=TYPES)
    parser.add_argument("--roles", nargs="*", default=ROLES)
    options = parser.parse_args(arguments)
    columns = list(product(options.terms, options.types))
    print(f"| defect | {' | '.join(f'{size} {dtype}' for size, dtype in columns)} |")
    print(f"|{'---|' * (1 + len(columns))}")
    named, unnamed, slowest = 0, 0, 0.0
    for defect in DEFECTS:
        cells, some = [], False
        for size, dtype in columns:
            judged = list(verdicts(defect, size, dtype, options.roles))
            cells.append(cell(defect, [verdict for verdict, _ in judged]))
            some = some or "named" in cells[-1]
            unnamed += cells[-1].count("no name")
            slowest = max([slowest, *(seconds for _, seconds in judged)])
        named += some
        print(f"| {defect} | {' | '.join(cells)} |", flush=True)
    print(f"{len(DEFECTS)} defects, {named} named; slowest {slowest:.2f} s")
    return 1 if unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
