"""Measure what verdicts cost: a thousand small cases in one process, and the exact sums of one large case.

python benchmarks/verify_cases.py -o verify_cases.csv

A small case is a weight gradient of 576 to 1,296 elements, no two alike; ``convgrad verify --call`` judges a function
that sums by NumPy, tap by tap, and convgrad itself, whose kernels are compiled meanwhile. "ms" is of one case, operands
and the function counted in, by the clock and by the processor's time.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import product

import numpy as np
from rows import asked, write_rows

from convgrad import cli, notation
from convgrad.functional.call import prepare
from convgrad.host import cpu_model
from convgrad.verify.fill import fill
from convgrad.verify.reference import certify

FUNCTIONS = ("verify_cases:by_taps", "convgrad:run")
LARGE = "BWD_W f32 NXC mb256ic128ih28oc128oh28kh3ph1"


def by_taps(
    operator: str, src: np.ndarray, diff_dst: np.ndarray, weights_shape: Sequence[int], **attributes: Sequence[int]
) -> np.ndarray:
    """Return a weight gradient of two axes, channels last, in f32: a matrix product for each tap."""
    pads = zip(attributes["pads_begin"], attributes["pads_end"], strict=True)
    padded = np.pad(src, ((0, 0), *pads, (0, 0)))
    diff_weights = np.empty(weights_shape, np.float32)
    for tap in product(*map(range, weights_shape[:2])):
        met = [slice(k, k + s * o, s) for k, s, o in zip(tap, attributes["strides"], diff_dst.shape[1:3], strict=True)]
        windows = padded[:, met[0], met[1]][:, : diff_dst.shape[1], : diff_dst.shape[2]]
        diff_weights[tap] = np.tensordot(windows, diff_dst, ([0, 1, 2], [0, 1, 2]))
    return diff_weights


def small_cases(count: int) -> list[str]:
    """Return problem lines of small weight gradients."""
    rng, lines = np.random.default_rng(0), dict[str, None]()
    while len(lines) < count:
        batch, extent = rng.integers(1, 5), rng.integers(7, 15)
        inner, outer = rng.integers(8, 13, 2)
        stride, pad = rng.integers(1, 3), rng.integers(0, 2)
        made = (extent + 2 * pad - 3) // stride + 1
        lines[f"BWD_W f32 NXC mb{batch}ic{inner}ih{extent}oc{outer}oh{made}kh3sh{stride}ph{pad}"] = None
    return list(lines)


def measured(what: str, cases: int, run: Callable[[], object]) -> dict[str, object]:
    """Return the row of what is run."""
    begin, used = time.perf_counter(), time.process_time()
    run()
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    return {
        "what": what,
        "cases": cases,
        "seconds": round(seconds, 3),
        "ms": round(1e3 * seconds / cases, 3),
        "cpu_ms": round(1e3 * used / cases, 3),
        "processor": cpu_model(),
    }


def judge(function: str, lines: Sequence[str]) -> None:
    """Judge a function by all cases; all of them are right."""
    with redirect_stdout(io.StringIO()) as said:
        code = cli.main(["verify", *lines, "--call", function])
    if code:
        raise SystemExit(said.getvalue())


def certified(line: str) -> Callable[[], object]:
    """Return what computes the exact sums of a case, made up of normal numbers."""
    (call,) = notation.calls(notation.read(line))
    operands = fill(notation.problem(line), call.shapes[:2], "normal", 0)
    prepared = prepare(call.operator, (*operands, *call.shapes[2:]), call.attributes)
    return lambda: certify(prepared.problem, prepared.operands)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each row; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what verdicts cost.")
    parser.add_argument("--cases", type=int, default=1000, help="small ones")
    parser.add_argument("--large", default=LARGE, metavar="LINE")
    options = asked(parser, arguments)
    lines, rows = small_cases(options.cases), []
    for function in FUNCTIONS:
        judge(function, lines[:1])  # what is imported and loaded once is no case's
        rows.append(measured(f"verify --call {function}", len(lines), lambda name=function: judge(name, lines)))
    rows.append(measured(f"exact sums of {options.large}", 1, certified(options.large)))
    for row in rows:
        print(f"{row['what']}: {row['cases']} in {row['seconds']} s, {row['ms']} ms each, {row['cpu_ms']} ms of CPU")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
