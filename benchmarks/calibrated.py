"""Time plans chosen by calibrated speeds against plans chosen by the assumed ones, in turns on the same operands.

python -m convgrad calibrate
python benchmarks/calibrated.py --suite depthwise,pointwise -o calibrated.csv

A row is a problem. ``gain`` is the time with the plan of the assumed speeds divided by the time with that of the
calibrated ones; it is 1 if they choose the same plan.
"""

from __future__ import annotations

import sys
from typing import Any

from tuned import report

from convgrad.cli.bench.suites import TimedCase
from convgrad.engines.llvm import isas, speeds
from convgrad.engines.llvm.tune import distinct, measured
from convgrad.host import cpu_model
from convgrad.plan.passes import dense_plan, dense_strides


def row(case: TimedCase, threads: int) -> dict[str, Any]:
    """Return the figures of a problem."""
    isa, problem = isas.isa(), case.problem
    assert isa is not None, "kernels are timed"
    plans = distinct(dense_plan(problem, of(isa), threads) for of in (isas.uncalibrated, isas.machine))
    ms = measured(problem, dense_strides(problem), plans) if len(plans) > 1 else [0.0, 0.0]
    return {
        "suite": case.suite, "name": case.name, "problem": case.text, "threads": threads,
        "plan": "same" if len(plans) == 1 else "other", "assumed_ms": ms[0], "calibrated_ms": ms[1],
        "gain": ms[0] / ms[1] if ms[1] else 1.0, "machine": cpu_model(),
    }  # fmt: skip


if __name__ == "__main__":
    if speeds.kept(isas.isa()) is None:
        sys.exit("calibrated.py: run python -m convgrad calibrate first")
    report(row, __doc__)
