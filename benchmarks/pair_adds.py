"""Time the multiply-add of a pair of bf16 beside that of single K: how many of the latter take as long.

python benchmarks/pair_adds.py -o pair_adds.csv

Twelve chains, which hide latency, add products of registers; the fastest of some rounds counts. The planner's
``PAIR_ADDS`` is the ratio of a processor whose pairs are slow.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time

import numpy as np
from rows import asked, write_rows

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import isas, jit
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum
from convgrad.host import cpu_model
from convgrad.plan.machine import Isa

CHAINS, STEPS = 12, 200_000


def module_of(isa: Isa, word: MultiplyAdd) -> str:
    """Return the IR of ``chains``: so many steps, each of which adds to each chain."""
    module, kind = Module(), f"<{isa.lanes} x i32>"
    f = module.function("chains", public=True, a="ptr", out="ptr", count="i64")
    a, b = f.load(kind, f.a), f.load(kind, f.a, 4 * isa.lanes)
    zeros = {f"sum{chain}": f.zeros(f"<{isa.lanes} x float>") for chain in range(CHAINS)}
    with f.loop(f.count, **zeros) as step:
        step.next(**{name: word(f, step.carried[name], a, b) for name in zeros})
    for chain, name in enumerate(zeros):
        f.store(step.carried[name], f.out, chain * 4 * isa.lanes)
    f.done()
    return str(module)


def adds_per_ns(isa: Isa, word: MultiplyAdd, rounds: int) -> float:
    """Return the vectors of sums that are added to, per ns."""
    operands = np.full(2 * isa.lanes, 0x3F803F80, np.uint32)  # ones
    out, found = np.empty((CHAINS, isa.lanes), np.float32), []
    arguments = (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    (chains,) = jit.functions(isa, module_of, isa, word, chains=arguments)
    for _ in range(rounds):
        begin = time.perf_counter()
        chains(address_of(operands), address_of(out), STEPS)
        found.append(time.perf_counter() - begin)
    return CHAINS * STEPS / min(found) * 1e-9


def main() -> int:
    """Print one row."""
    parser = argparse.ArgumentParser(
        prog="pair_adds.py", description="Time multiply-adds of pairs of bf16, and single."
    )
    parser.add_argument("--rounds", type=int, default=50, help="of which the fastest counts (default 50)")
    options = asked(parser)
    isa = next((one for one in isas.host_isas() if one.pairs), None)
    if isa is None:
        sys.exit("this machine has no instruction for pairs")
    rates = [adds_per_ns(isa, word, options.rounds) for word in (high_sum, PAIR_SUMS[isa.pairs])]
    row = {
        "instruction_set": isa.name, "single_per_ns": f"{rates[0]:.3f}", "pairs_per_ns": f"{rates[1]:.3f}",
        "pair_adds": f"{rates[0] / rates[1]:.2f}", "processor": cpu_model(),
    }  # fmt: skip
    print(", ".join(f"{name} {value}" for name, value in row.items()))
    if options.output:
        write_rows(options.output, [row])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
