"""Time bf16 layers in pairs of terms beside the same layers in f32, of ordinary data and of data without pairs.

python benchmarks/pairs.py -o pairs.csv

Each layer is computed in turns on one thread: in f32; in bf16 of ordinary data; in bf16 of data so small that no panel
is taken in pairs. Ratios are medians of the f32 time over the others' in the same turn. Where the processor has no
instruction for pairs, fused multiply-adds stand in for it: only what is taken one by one says anything there.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
from rows import asked, write_rows

from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import Executable, executable_of
from convgrad.formats import BF16, F32, Format
from convgrad.host import cpu_model
from convgrad.notation import problem as problem_of
from convgrad.plan.machine import Machine
from convgrad.plan.passes import plan, view_of
from convgrad.spec.layouts import axis_order
from convgrad.spec.problem import Problem, canonical_shape

LAYERS = (
    "BWD_W bf16 NXC mb2ic64ih56oc64oh56kh3ph1", "BWD_W bf16 NCX mb2ic64ih56oc64oh56kh3ph1",
    "BWD_W bf16 NXC mb8ic256ih14oc256oh14kh3ph1", "BWD_W bf16 NXC mb4ic128ih56oc128oh28kh3sh2ph1",
    "BWD_W bf16 NXC mb4ic256ih56oc64oh56kh1", "BWD_W bf16 NCX mb8ic1024ih14oc256oh14kh1",
    "BWD_W bf16 NXC mb4ic67ih31oc131oh31kh3ph1", "BWD_W bf16 NXC mb4ic3ih112oc64oh56kh7sh2ph3",
    "BWD_W bf16 NXC g32mb4ic256ih14oc256oh14kh3ph1",
    "FWD_D bf16 NXC mb2ic64ih56oc64oh56kh3ph1", "FWD_D bf16 NXC mb8ic256ih14oc256oh14kh3ph1",
    "FWD_D bf16 NXC mb4ic256ih56oc64oh56kh1", "BWD_D bf16 NXC mb2ic64ih56oc64oh56kh3ph1",
    "BWD_D bf16 NXC mb8ic256ih14oc256oh14kh3ph1",
)  # fmt: skip
TOO_SMALL = 2.0**-66  # what both operands are scaled by


def prepared(problem: Problem, kind: Format, scale: float, machine: Machine) -> tuple[Executable, list[Any], Any]:
    """Return a call of a layer in a format, its operands and its output."""
    one, rng = replace(problem, operand_format=kind, output_format=kind), np.random.default_rng(1)
    operands = []
    for tensor, layout in zip(one.operands, one.layouts, strict=False):
        shape = canonical_shape(one.geometry, tensor)
        order = axis_order(layout, len(shape))
        lying = rng.standard_normal([shape[axis] for axis in np.argsort(order)], np.float32) * np.float32(scale)
        operands.append(lying.astype(ml_dtypes.bfloat16 if kind is BF16 else np.float32).transpose(order))
    out = np.empty(one.output_shape, one.output_format.dtype).transpose(one.output_order)
    chosen = plan(one, view_of(one, [each.strides for each in operands], out.strides), machine, 1)
    return executable_of(chosen, one, operands, out), operands, out


def timed(line: str, machine: Machine, rounds: int) -> dict[str, Any]:
    """Return the times of a layer's calls, and their ratios."""
    problem = problem_of(line)
    calls = {
        "f32": prepared(problem, F32, 1.0, machine), "pairs": prepared(problem, BF16, 1.0, machine),
        "single": prepared(problem, BF16, TOO_SMALL, machine),
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, (call, operands, out) in calls.items():
            call.execute(operands, out)
            begin = time.perf_counter()
            call.execute(operands, out)
            if turn:
                times[name].append(1e3 * (time.perf_counter() - begin))
    row: dict[str, Any] = {"problem": line, **{f"{name}_ms": f"{median(each):.4f}" for name, each in times.items()}}
    for name in ("pairs", "single"):
        ratios = [mine / theirs for mine, theirs in zip(times["f32"], times[name], strict=True)]
        taken = calls[name][0].paths
        row[f"{name}_of_f32"] = f"{median(ratios):.3f}"
        row[f"{name}_panels"] = "none" if taken is None else "/".join(map(str, taken.tolist()))
    return row


def main() -> int:
    """Print a row a layer."""
    parser = argparse.ArgumentParser(prog="pairs.py", description="Time bf16 layers in pairs of terms beside f32.")
    parser.add_argument("--rounds", type=int, default=15, help="turns that count (default 15)")
    options = asked(parser)
    isa = isas.isa()
    if isa is None:
        sys.exit(f"there are no kernels: {isas.why_no_isa()}")
    used = isa if isa.pairs else replace(isa, name=f"{isa.name}, pairs fused", pairs="fused")
    machine, rows = replace(isas.machine(isa), isa=used, pair_adds=1.0), []  # taken, however slow
    print(f"{cpu_model()}, {used.name}; speed in units of f32's, in pairs and one by one")
    for line in LAYERS:
        rows.append(timed(line, machine, options.rounds) | {"instruction_set": used.name, "processor": cpu_model()})
        print(f"{rows[-1]['pairs_of_f32']:>7} {rows[-1]['single_of_f32']:>7}  {line}", flush=True)
    if options.output:
        write_rows(options.output, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
