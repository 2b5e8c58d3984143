"""Tiles among pages that nobody may touch; run as a program, as ``guarded.py`` is.

``python -m tests.engines.guarded_winograd SEED COUNT`` names each problem before it runs it, and ends with a line of
what it did.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np

from campaigns.winograd import drawn
from convgrad.engines import scratch as kept_memory
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.winograd.run import tiled
from convgrad.plan.machine import Machine
from tests.engines.guarded import Array, GuardedScratch, GuardedShared, Placed, lying
from tests.engines.guarded_forward import canonical, made
from tests.support.helpers import assert_same_bits


def run_one(rng: np.random.Generator, done: Counter[str]) -> None:
    """Run a problem in ordinary memory, then in both placements: the bits are the same."""
    isa = isas.isa()
    assert isa is not None
    problem, threads = replace(drawn(rng, 9), accumulate=bool(rng.random() < 0.25)), int(rng.integers(1, 3))
    if bool(rng.integers(2)) and problem.solves_for != "weights":
        operands = (*problem.operands, "bias")
        problem = replace(problem, operands=operands, layouts=(*problem.layouts[:-1], "NCX", problem.layouts[-1]))
    machine, plain = Machine(isa, l2_bytes=1 << int(rng.integers(16, 21))), made(problem, rng)

    def run(arrays: list[Array]) -> Array:
        *given, out = (canonical(each, layout) for each, layout in zip(arrays, problem.layouts, strict=True))
        lies = (*[each.strides for each in given], out.strides)
        tiled(problem, lies, machine, threads).execute(given, out)
        return np.ascontiguousarray(out)

    expected = run([*plain[:-1], plain[-1].copy()])
    strided = [bool(rng.random() < 0.3) for _ in plain]
    strides = [lying(rng, array, odd) for array, odd in zip(plain, strided, strict=True)]
    for at_end in (True, False):
        words = f"{problem} strides {strides} guard {'behind' if at_end else 'before'} threads {threads}"
        print(words, flush=True)
        placed = [Placed(array, s, at_end) for array, s in zip(plain, strides, strict=True)]
        scratch, shared = GuardedScratch(at_end), GuardedShared(at_end)
        kept_memory.own, kept_memory.shared = scratch, shared  # type: ignore[assignment]
        assert_same_bits(run([each.array for each in placed]), expected, words)
        for now, before in zip(placed[:-1], plain[:-1], strict=True):
            assert now.array.tobytes() == before.tobytes(), f"an operand changed: {words}"
        assert all(p.intact() for p in placed), f"bytes around an array changed: {words}"
        assert all(m.intact() for m in (*scratch.given, *shared.given)), f"bytes around scratch changed: {words}"
        done["placements"] += 1
    done["problems"] += 1
    done["strided"] += any(strided)
    done["accumulated"] += problem.accumulate
    done["with bias"] += "bias" in problem.operands
    done[problem.solves_for] += 1


def main(seed: int, count: int) -> None:
    faulthandler.enable()
    done: Counter[str] = Counter()
    for number in range(count):
        run_one(np.random.default_rng([73, seed, number]), done)
    print(json.dumps(done))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
