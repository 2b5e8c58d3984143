"""Gradients of every class where executable memory is refused; run as a program, as a refusal is for good.

``python -m tests.engines.refused COUNT [LATE]`` prints a line of what computed, what was wrong and every warning; with
LATE kernels have been made and run before.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import sys
import warnings
from typing import Any

import numpy as np

import convgrad
from convgrad import engines
from convgrad.functional.call import prepare
from convgrad.spec import exact_result
from tests.support.classes import ALL_TYPES, NAMES, layer_case
from tests.support.helpers import operands_of

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1


def refuse() -> bool:
    """Have Linux refuse executable memory to this process; tell whether it knows how."""
    return ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0


def run_one(name: str, number: int, told: dict[str, Any]) -> None:
    """Run a random gradient of a class, in a new array or added to one, and compare with the oracle."""
    rng = np.random.default_rng([72, number])
    case = layer_case(name, rng, ALL_TYPES[number % 5], ALL_TYPES[number // 5 % 5])
    operands, accumulate = operands_of(case, "integers", number), number % 2 == 1
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype, accumulate)
    problem = prepared.problem
    old = rng.integers(-8, 9, problem.output_shape).astype(problem.output_format.dtype) if accumulate else None
    before = None if old is None else prepared.canonical_output(old).copy()
    got = convgrad.run(
        case.op.name, *operands, dtype=case.dtype, out=old, accumulate=accumulate, threads=2, **case.attributes
    )
    expected = exact_result.evaluate(problem, prepared.operands, before).rounded(problem)
    if np.ascontiguousarray(prepared.canonical_output(got)).tobytes() != expected.tobytes():
        told["wrong"].append(f"{name}: {case} number {number}")
    told["engines"][name] = sorted({*told["engines"].get(name, ()), engines.choose(problem).engine})
    told["problems"] += 1


def main(count: int, late: bool) -> None:
    faulthandler.enable()
    told: dict[str, Any] = {"problems": 0, "wrong": [], "refusals": [], "engines": {}, "warnings": []}
    if late:
        run_one("dense", 0, told)
    told["refused"] = refuse()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(count * told["refused"]):
            name = NAMES[number % len(NAMES)]
            print(name, number, flush=True)
            try:
                run_one(name, number, told)
            except convgrad.UnsupportedError as error:
                told["refusals"].append(str(error))
    told["warnings"] = [str(warning.message) for warning in caught]
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["LATE"])
