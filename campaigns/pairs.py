"""Random bf16 problems of all roles whose terms are taken in pairs, by the instruction or as it takes them.

``python -m campaigns pairs --kind normal --problems 20000`` holds so many against the bound of the order,
``--kind integers`` against the oracle's bits, ``--kind guard`` integers among pages that nobody may touch. Dense layers
and those of the special classes take turns. What is wrong is printed as a call; the exit code is then 1.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from campaigns.classes import BIASED, MULTIPLY_ADDS
from campaigns.command import parser_of
from convgrad.engines.llvm import execute, isas
from convgrad.formats import BF16, FORMATS
from convgrad.plan import constants
from convgrad.plan.machine import ISAS, Machine
from convgrad.verify.fill import Kind
from tests.engines.guarded_problems import gradient, run_one
from tests.engines.runs import CHANNELS, assert_bounded, assert_exact, run_anyhow
from tests.support.classes import CLASSES, CONVOLUTIONS, NAMES, QUICK_ELEMENTS, TYPES, any_case, draw
from tests.support.engine_helpers import HOST, modelled
from tests.support.helpers import Case

CHUNK = 2000  # problems, which share some channels and a type of results: few kernels are compiled
# the instruction itself where there is one, else what it does
TAKES = next((isa for isa in isas.host_isas() if isa.pairs), modelled(ISAS[HOST[0]], "flushed"))
FAST = Machine(TAKES)  # whose pairs are worth to be taken
DENSE = ("dense", "pointwise", "dense")


def cases_of(chunk: int) -> Iterator[Case]:
    """Yield calls without end."""
    rng = np.random.default_rng([112, chunk])
    output = FORMATS[("bf16", "f32", "f16")[chunk % 3]]
    if chunk % 3 < 2:
        channels = tuple(map(int, rng.choice(CHANNELS, 2, replace=False)))
        rows = [replace(CLASSES[name], inner=channels, outer=channels) for name in DENSE]
    else:
        rows = list(BIASED.values())
    drawn = [draw(row, rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS) for row in rows]
    while True:
        yield any_case(next(drawn[rng.integers(len(drawn))]), rng, BF16, output, CONVOLUTIONS)


def as_large(patch: pytest.MonkeyPatch) -> None:
    """Let kernels of their own be taken for layers however small."""
    patch.setattr(isas, "isa", lambda: TAKES)
    patch.setattr(isas, "machine", lambda isa: FAST)
    patch.setattr(constants, "SMALL_PROBLEM", 0)
    patch.setattr(constants, "FEWER_ROWS_POSITIONS", 1)


def panels(found: Counter[str]) -> None:
    """Count the panels of the calls that are known, and forget those."""
    for one in list(execute._kept.values()):
        if one.paths is not None:
            pairs, single = one.paths.tolist()
            found.update(pairs=pairs, single=single, calls=1)
    execute._kept.clear()


def run_chunk(chunk: int, kind: Kind, count: int, done: Counter[str]) -> float:
    """Run calls of a chunk; print what is wrong, return the largest error over its bound."""
    rng, largest = np.random.default_rng([113, chunk, kind == "normal"]), 0.0
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        for case in islice(cases_of(chunk), count):
            one = run_anyhow(case, rng, kind, str(TAKES))
            try:
                largest = max(largest, assert_exact(one) if kind == "integers" else assert_bounded(one))
            except AssertionError as error:
                print(f"wrong: {error}", flush=True)
                done["wrong"] += 1
            done.update({"problems": 1, case.op.solves_for: 1})
            panels(done)
    return largest


def guard(first: int, count: int, done: Counter[str]) -> None:
    """Run weight gradients of all classes among guard pages."""
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        for number in range(first, first + count):
            output = TYPES[number // 50 % 3]
            rng = np.random.default_rng([114, number])
            run_one(rng, gradient(rng, NAMES[number % len(NAMES)], "bf16", output), done)
            panels(done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print how many of what."""
    parser = parser_of(
        "pairs", "Hold random bf16 problems in pairs of terms against the oracle.", problems=1000, first=0
    )
    parser.add_argument("--kind", default="normal", choices=("normal", "integers", "guard"))
    options = parser.parse_args(arguments)
    done, largest, started = Counter[str](), 0.0, time.monotonic()
    for number, at in enumerate(range(0, options.problems, CHUNK), options.first):
        count, told = min(CHUNK, options.problems - at), {}  # type: tuple[int, dict[str, Any]]
        if options.kind == "guard":
            guard(number * CHUNK, count, done)
        else:
            largest = max(largest, run_chunk(number, options.kind, count, done))
            told = {"largest error of its bound": round(largest, 4)}
        seconds = round(time.monotonic() - started)
        print(
            json.dumps({"kind": options.kind, "instruction_set": str(TAKES), "seconds": seconds, **done, **told}),
            flush=True,
        )
    return int(done["wrong"] > 0)
