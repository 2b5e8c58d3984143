"""The tolerance a case deserves: no right result lies outside, a smaller one refuses some, and its price is told."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad import cases
from convgrad.formats import FORMATS, round_to
from convgrad.functional.call import Prepared, prepare
from convgrad.verify.bound import bound_of
from convgrad.verify.declared import Declared, declared
from convgrad.verify.fill import Kind
from convgrad.verify.reference import Reference, certify
from convgrad.verify.tolerance import tolerance
from tests.support.judging import inputs_of

LINES = (
    "BWD_W f32 NXC mb2ic4ih6oc5oh6kh3ph1",
    "BWD_D bf16 NCX g2mb1ic4ih7oc6oh4kh3sh2ph1",
    "FWD_D f16 NXC mb1ic8iw9ow9oc4kw3pw1",
    "deconv BWD_W f64 NXC mb1ic3iw5ow9oc4kw3sw2pw1",
)


def called(line: str, kind: Kind) -> Prepared:
    case = next(iter(cases.read(line)))
    return prepare(case.operator, inputs_of(case, kind), case.attributes)


def right_results(call: Prepared, how: Declared, reference: Reference) -> tuple[np.ndarray, ...]:
    """The two right results that lie farthest from the exact one."""
    fmt, problem = call.problem.output_format, call.problem
    bound = bound_of(reference, problem, how, call.operands)
    return tuple(round_to(reference.value + sign * bound, fmt).astype(fmt.dtype) for sign in (-1, 1))


@pytest.mark.parametrize("height", [None, 4])
@pytest.mark.parametrize("line", LINES)
def test_no_right_result_lies_outside_and_a_smaller_tolerance_refuses_some(line: str, height: int | None) -> None:
    call = called(line, "normal")
    how = Declared(call.problem.operand_format.accumulator, height)
    reference = certify(call.problem, call.operands)
    found = tolerance(call, how, reference)
    wide = np.float64 if call.problem.output_format is FORMATS["f64"] else np.float32
    expected = reference.rounded(call.problem.output_format).astype(wide)
    ends = [end.astype(wide) for end in right_results(call, how, reference)]
    assert all(np.allclose(end, expected, found.rtol, found.atol) for end in ends)
    shrunk = (1 - 2.5e-2) * found.atol, (1 - 2.5e-2) * found.rtol  # more than rounding up to three digits adds
    refused = not all(np.allclose(end, expected, shrunk[1], shrunk[0]) for end in ends)
    assert refused or shrunk == (0, 0)  # where both ends round to the same bf16 or f16 everywhere


@pytest.mark.parametrize("line", LINES)
def test_no_other_pair_is_smaller_on_average(line: str) -> None:
    call = called(line, "normal")
    how = Declared(call.problem.operand_format.accumulator)
    reference = certify(call.problem, call.operands)
    found = tolerance(call, how, reference)
    expected = np.abs(reference.rounded(call.problem.output_format).astype(np.float64))
    off = np.max([np.abs(np.abs(end.astype(np.float64)) - expected) for end in right_results(call, how, reference)], 0)
    least = min(
        max(float((off - rtol * expected).max()), 0) + rtol * float(expected.mean())
        for rtol in np.concatenate(([0], np.geomspace(1e-18, 1, 400)))
    )
    assert found.atol + found.rtol * float(expected.mean()) <= 1.02 * least


def test_where_sums_are_exact_nothing_is_allowed() -> None:
    call = called(LINES[0], "integers")
    found = tolerance(call, Declared(FORMATS["f32"]))
    assert (found.atol, found.rtol, found.zeros) == (0, 0, 0)
    # rounding to these formats changes no small integer
    assert found.undetected == ("operands rounded to tf32", "operands rounded to bf16")


@pytest.mark.parametrize(("how", "unseen"), [(Declared(FORMATS["f16"]), True), (Declared(FORMATS["f32"], 4), False)])
def test_what_passes_is_told(how: Declared, unseen: bool) -> None:
    found = tolerance(called(LINES[0], "normal"), how)
    assert bool(found.undetected) == unseen
    assert ("a 0 would pass" in str(found)) == (found.zeros > 0) == unseen
    assert [name for name, _ in found.detections][-1] == "the last image left out"


def test_elements_without_a_bound_are_left_out() -> None:
    (case,) = cases.read(LINES[0])
    src, *others = inputs_of(case, "normal")
    src[0, 0, 0, 1] = np.inf
    found = tolerance(prepare(case.operator, (src, *others), case.attributes), Declared(FORMATS["f32"]))
    assert 0 < found.unbounded < found.elements
    assert np.isfinite([found.atol, found.rtol]).all()
    assert f"{found.unbounded} elements" in str(found)


def test_an_empty_result_needs_none() -> None:
    x = np.ones((0, 3, 2), np.float32)
    call = prepare("Convolution", (x, np.ones((1, 2, 2), np.float32)), {"strides": [1], "dilations": [1]})
    assert tolerance(call, Declared(FORMATS["f32"])).elements == 0


def test_without_a_bound_there_is_no_tolerance() -> None:
    ones = np.ones((1, 4, 1), np.float32)
    call = prepare(
        "ConvolutionBackwardWeights", (ones, ones), {"strides": [1], "dilations": [1], "weights_shape": (1, 1, 1)}
    )
    how = declared("ConvolutionBackwardWeights", call.problem.operand_format, algorithm="fft")
    assert str(tolerance(call, how)) == "there is no tolerance, because no element has a bound"
