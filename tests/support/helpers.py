"""Random legal calls of every operator, made-up operands, and comparisons that assert."""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import convgrad
from convgrad import engines
from convgrad.formats import FORMATS, Format
from convgrad.functional.call import Prepared, prepare
from convgrad.spec import exact_result
from convgrad.spec.check import check_attributes
from convgrad.spec.geometry import effective_kernel, forward_extent, transposed_extent
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import OPERATORS, Operator
from convgrad.spec.problem import problem_of
from convgrad.verify.compare import compare
from convgrad.verify.fill import Kind, fill
from convgrad.verify.verdict import Verdict

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Convolution": convgrad.convolution,
    "ConvolutionBackwardData": convgrad.convolution_backward_data,
    "ConvolutionBackwardWeights": convgrad.convolution_backward_weights,
    "ConvTranspose": convgrad.conv_transpose,
    "ConvTransposeBackwardData": convgrad.conv_transpose_backward_data,
    "ConvTransposeBackwardWeights": convgrad.conv_transpose_backward_weights,
    "BiasAdd": convgrad.bias_add,
    "BiasAddBackward": convgrad.bias_add_backward,
    "ConvolutionBackpropWeights-1": convgrad.convolution_backprop_weights,
    "ConvolutionBackpropFilters-1": convgrad.convolution_backprop_filters,
    "ConvolutionBackpropData-1": convgrad.convolution_backprop_data,
}


@dataclass(frozen=True)
class Case:
    """A call by shapes: of its operands in order, a shape operand's entry being its values."""

    op: Operator
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any] = field(hash=False)
    format: Format = FORMATS["f32"]
    dtype: str | None = None

    def __str__(self) -> str:
        return f"{self.op.name} {self.format} {self.shapes} {self.attributes}"


def operands_of(case: Case, kind: Kind, seed: int) -> tuple[object, ...]:
    """Return operands in the caller's layouts; shape operands as int32 arrays."""
    attributes = check_attributes(case.op, case.attributes, len(case.shapes[0]) - 2)
    out_format = FORMATS[case.dtype] if case.dtype else case.format
    problem = problem_of(case.op, case.shapes, attributes, case.format, out_format)
    ports = case.op.operands[: len(case.shapes)]
    made = iter(fill(problem, [s for p, s in zip(ports, case.shapes, strict=True) if not p.is_shape], kind, seed))
    return tuple(np.array(s, np.int32) if p.is_shape else next(made) for p, s in zip(ports, case.shapes, strict=True))


def run_case(case: Case, operands: tuple[object, ...]) -> tuple[Prepared, np.ndarray, exact_result.Answer]:
    """Run a case and the oracle; return the prepared call, the canonical result, the answer."""
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype)
    result = convgrad.run(case.op.name, *operands, dtype=case.dtype, **case.attributes)
    return prepared, prepared.canonical_output(result), exact_result.evaluate(prepared.problem, prepared.operands)


def assert_same_bits(got: np.ndarray, expected: np.ndarray, what: object) -> None:
    """Assert that two arrays have equal shape, type and bytes."""
    assert got.shape == expected.shape, what
    assert got.dtype == expected.dtype, what
    if got.tobytes() != expected.tobytes():
        differ = np.argwhere(np.asarray(got != expected))
        raise AssertionError(f"{what}: {len(differ)} of {got.size} elements differ, first at {differ[:1].tolist()}")


def assert_exact(case: Case, seed: int) -> None:
    """Assert that a case on integers gives the oracle's bits."""
    prepared, got, answer = run_case(case, operands_of(case, "integers", seed))
    assert_same_bits(got, answer.rounded(prepared.problem), f"{case} seed {seed}")


def assert_bounded(case: Case, seed: int) -> Verdict:
    """Assert that a case on normal numbers keeps its bound."""
    prepared, got, answer = run_case(case, operands_of(case, "normal", seed))
    verdict = compare(got, answer, prepared.problem, engines.height(prepared.problem))
    assert verdict.ok, f"{case} seed {seed}: {verdict}"
    return verdict


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory of Python's that a call takes, beside what there was."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where processor time runs out: a refusal must not take as long as a stride is long."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# -- random cases -----------------------------------------------------------------------------------------------


def random_case(rng: np.random.Generator, op: Operator | None = None, axes: int | None = None) -> Case:
    """Return a random legal call of ``op``, or any operator, on 1 to 4 spatial axes, small enough to run quickly."""
    op = op or OPERATORS[rng.integers(len(OPERATORS))]
    axes = axes or int(rng.integers(1, 5))
    fmt = FORMATS[str(rng.choice(list(FORMATS), p=[0.4, 0.2, 0.2, 0.1, 0.05, 0.05]))]
    data_format = str(rng.choice(["NXC", "NCX"]))
    if op.solves_for in ("bias_add", "bias"):
        extents = rng.integers(0, 6, int(rng.integers(0, axes + 1)))
        channels = int(rng.integers(1, 9))
        data = from_canonical((int(rng.integers(0, 4)), channels, *map(int, extents)), data_format)
        return Case(op, (data, (channels,))[: len(op.operands)], {"data_format": data_format}, fmt)
    case = None
    while case is None:
        case = _random_convolution(rng, op, axes, fmt, data_format)
    narrow = fmt.name != "f64" and rng.random() < 0.2
    return replace(case, dtype=str(rng.choice(["f32", "bf16", "f16"]))) if narrow else case


def _random_convolution(
    rng: np.random.Generator, op: Operator, axes: int, fmt: Format, data_format: str
) -> Case | None:
    weights_format = op.attribute("weights_format")
    assert weights_format is not None
    layout = str(rng.choice(weights_format.choices))
    auto_pad = str(rng.choice(["none", "same_upper", "same_lower", "valid"], p=[0.55, 0.15, 0.15, 0.15]))
    groups = int(rng.choice([1, 1, 2, 3, 4]))
    batch, in_group, out_group = int(rng.integers(0, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 6))
    src_channels, dst_channels = groups * in_group, groups * out_group  # the operator's own
    largest = {1: 20, 2: 9, 3: 6, 4: 4}[axes]
    kernel, strides, dilations = (rng.integers(1, high, axes) for high in (min(6, largest), 5, 4))
    pads_begin, pads_end = rng.integers(0, 5, axes), rng.integers(0, 5, axes)
    paddings = np.array(
        [rng.integers(0, max(s, d) if op.transposed else s) for s, d in zip(strides, dilations, strict=True)]
    )
    small_axes, large_axes = [], []
    for x in range(axes):
        e, s = effective_kernel(int(kernel[x]), int(dilations[x])), int(strides[x])
        if op.transposed:
            small = int(rng.integers(1, largest))
            pads = {"none": int(pads_begin[x] + pads_end[x]), "valid": 0}.get(auto_pad, max(e - s, 0))
            large = transposed_extent(small, e, s, pads, int(paddings[x]))
        else:
            large = int(rng.integers(1, largest + 4))
            pads = {"none": int(pads_begin[x] + pads_end[x]), "valid": 0}.get(auto_pad)
            small = -(-large // s) if pads is None else forward_extent(large, e, s, pads)
        if small < 1 or large < 1:
            return None
        small_axes.append(small)
        large_axes.append(large)
    src_extents, dst_extents = (small_axes, large_axes) if op.transposed else (large_axes, small_axes)
    src = from_canonical((batch, src_channels, *src_extents), data_format)
    dst = from_canonical((batch, dst_channels, *dst_extents), data_format)
    outer, inner = (src_channels, out_group) if op.transposed else (dst_channels, in_group)
    weights = from_canonical((outer, inner, *map(int, kernel)), layout)
    attributes: dict[str, Any] = {
        "strides": strides.tolist(),
        "dilations": dilations.tolist(),
        "data_format": data_format,
    }
    attributes |= {"auto_pad": auto_pad, "groups": groups, weights_format.name: layout}
    if auto_pad == "none" or rng.random() < 0.3:
        attributes |= {"pads_begin": pads_begin.tolist(), "pads_end": pads_end.tolist()}
    if op.transposed:
        attributes["output_padding"] = paddings.tolist()
    by_tensor = {"src": dst, "dst": src} if op.transposed else {"src": src, "dst": dst}
    by_tensor |= {"weights": weights, "bias": (dst_channels,)}
    return _with_shape(rng, Case(op, tuple(by_tensor[p.tensor] for p in op.operands), attributes, fmt), by_tensor)


def _with_shape(rng: np.random.Generator, case: Case, by_tensor: dict[str, tuple[int, ...]]) -> Case:
    """Give the optional last operand, or leave it out: a bias away, a shape as attribute instead."""
    last = case.op.operands[-1]
    if last.required or rng.random() < 0.5:
        return case
    attributes = dict(case.attributes)
    if last.is_shape:
        attribute = next(a for a in case.op.attributes if a.means in ("weights_shape", "dst_shape"))
        attributes[attribute.name] = list(by_tensor[last.tensor])
    return replace(case, shapes=case.shapes[:-1], attributes=attributes)
