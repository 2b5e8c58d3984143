"""A new size compiles nothing: a layer class has few kernels, a first call is prepared quickly, caches are bounded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from convgrad import convolution, convolution_backward_data, convolution_backward_weights, engines
from convgrad.engines import numpy as by_numpy
from convgrad.engines.llvm import execute, jit
from convgrad.engines.llvm.execute import Executable
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import plans, view_of
from convgrad.plan.recipe import Chosen
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.spec.geometry import forward_extent
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, Array, empty, modelled, run_plan
from tests.support.forward_problems import sums_of
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

SIZES = 1000
MOST_KERNELS = 8
MOST_MS = 50.0  # of processor time to check, plan and run a call of a new size; loose, and only small layers are run
IN, OUT = 64, 48


def new_sizes(seed: int, kernel: int, count: int) -> Iterator[tuple[Array, Array, dict[str, object]]]:
    """Calls of one layer class, no two alike: batch, extents, strides and pads differ; channels and kernel do not."""
    rng, seen = np.random.default_rng([61, seed]), set()
    memory = rng.standard_normal(2 * 24 * 24 * IN).astype(np.float32)
    while len(seen) < count:
        batch, h, w = (int(rng.integers(1, high)) for high in (5, 25, 25))
        stride, begin, end = (rng.integers(low, 3, 2).tolist() for low in (1, 0, 0))
        out = [forward_extent(n, kernel, s, b + e) for n, s, b, e in zip((h, w), stride, begin, end, strict=True)]
        size = (batch, h, w, *stride, *begin, *end)
        if (
            min(out) < 1
            or batch * h * w * IN > memory.size
            or batch * out[0] * out[1] * OUT > memory.size
            or size in seen
        ):
            continue
        seen.add(size)
        src = memory[: batch * h * w * IN].reshape(batch, h, w, IN)
        dst = memory[: batch * out[0] * out[1] * OUT].reshape(batch, *out, OUT)
        yield src, dst, {"strides": stride, "pads_begin": begin, "pads_end": end}


@tiers("kernel, data_format, sizes", [(3, "NXC", 60)], long=product((3, 1), ("NXC", "NCX"), (SIZES,)))
def test_a_new_size_compiles_nothing(
    kernel: int, data_format: str, sizes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 8 kernels for 1,000 sizes of a layer class: channels, taps, types and layouts."""
    compiled: list[SplitKSpec] = []
    used: dict[SplitKSpec, int] = {}
    make = execute.tabled

    def generate(spec: SplitKSpec) -> str:
        compiled.append(spec)
        return execute_module(spec)

    def remember(*arguments: object) -> Executable:
        made = make(*arguments)  # type: ignore[arg-type]
        used[made.plan.spec] = used.get(made.plan.spec, 0) + 1
        return made

    execute_module = execute.module_of
    monkeypatch.setattr(execute, "module_of", generate)
    monkeypatch.setattr(execute, "tabled", remember)
    monkeypatch.setattr(by_numpy, "execute", None)  # would fail
    monkeypatch.setattr(execute, "_kept", type(execute._kept)())
    times_ms = []
    before = jit._linker.number
    for src, dst, rest in new_sizes(kernel, kernel, sizes):
        given = [src, dst]
        if data_format == "NCX":
            given = [np.ascontiguousarray(np.moveaxis(a, -1, 1)) for a in given]
        weights = (kernel, kernel, IN, OUT)
        known = len(compiled)
        begin = time.thread_time()
        convolution_backward_weights(*given, weights, data_format=data_format, threads=1, **rest)  # type: ignore[arg-type]
        if len(compiled) == known:
            times_ms.append(1000 * (time.thread_time() - begin))
        convolution_backward_weights(*given, weights, data_format=data_format, threads=1, **rest)  # type: ignore[arg-type]
        assert len(execute._kept) <= execute.CAPACITY
        assert execute._kept_bytes() <= execute.CAPACITY_BYTES
    assert sum(used.values()) == sizes, "each size is prepared once, the second call finds it"
    assert len(compiled) == jit._linker.number - before
    assert set(compiled) <= set(used)
    assert len(used) <= MOST_KERNELS, used
    assert statistics.median(times_ms) < MOST_MS


def test_prepared_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, and by what their tables take; the latest call is kept whatever it takes."""
    monkeypatch.setattr(execute, "_kept", type(execute._kept)())
    x = np.ones((1, 400, 1), np.float32)

    def call(n: int) -> None:
        problem = prepare("ConvolutionBackwardWeights", (x[:, :n], x[:, :n], (1, 1, 1)), RUN).problem
        assert engines.choose(problem).engine == "generated"
        convolution_backward_weights(x[:, :n], x[:, :n], (1, 1, 1), threads=1)

    monkeypatch.setattr(execute, "CAPACITY", 50)
    for n in range(1, 70):
        call(n)
        assert len(execute._kept) == min(n, execute.CAPACITY)
    monkeypatch.setattr(execute, "CAPACITY_BYTES", 5000)
    call(400)
    assert 1 <= len(execute._kept) < 20
    assert execute._kept_bytes() <= 5000
    monkeypatch.setattr(execute, "CAPACITY_BYTES", 1)
    call(1)
    assert len(execute._kept) == 1


RUN = {"strides": [1], "dilations": [1]}


@pytest.mark.parametrize("far", [10**7, 2**57, 2**59, 2**60])
@pytest.mark.parametrize(("groups", "channels"), [(1, 2), (1, 16), (1, 40), (33, 33)])
def test_outer_taps_far_in_the_padding(groups: int, channels: int, far: int) -> None:
    """Only the middle tap exists. Offsets wrap around, and code of a length of the dilation would never be compiled."""
    rng = np.random.default_rng(channels)
    x, y = (rng.integers(-3, 4, (2, 5, channels)).astype(np.float32) for _ in range(2))
    weights = rng.integers(-3, 4, (3, channels // groups, channels)).astype(np.float32)
    layer: dict[str, Any] = {"dilations": far, "pads_begin": far, "pads_end": far, "groups": groups}
    middle = weights[1] if groups == 1 else np.diag(weights[1, 0])
    assert_same_bits(convolution(x, weights, **layer), x @ middle, far)
    assert_same_bits(convolution_backward_data(y, weights, x.shape, **layer), y @ middle.T, far)
    gradient = np.zeros_like(weights)
    of_all = np.einsum("nxi,nxo->io", x, y)
    gradient[1] = of_all if groups == 1 else np.diag(of_all)
    assert_same_bits(convolution_backward_weights(x, y, weights.shape, **layer), gradient, far)


@pytest.mark.parametrize(("kind", "groups", "per_group", "kernel"), [("f32", 32, 1, 4), ("bf16", 16, 2, 1)])
@pytest.mark.parametrize("far", [2**59, 2**63 - 3])
def test_positions_far_in_the_padding(far: int, kind: str, groups: int, per_group: int, kernel: int) -> None:
    """Taps exist at the first of two positions, or at none. The distance of the other one, modulo 2**64, is no step."""
    rng, channels, dtype = np.random.default_rng(kernel), groups * per_group, FORMATS[kind].dtype
    src, dst = (rng.integers(-3, 4, (2, channels, extent)).astype(dtype) for extent in (5, 2))
    weights = rng.integers(-3, 4, (kernel, per_group, channels)).astype(dtype)
    for name, operands in (
        ("Convolution", (src, weights)),
        ("ConvolutionBackwardWeights", (src, dst, weights.shape)),
    ):
        calls = []
        for stride in (1000, far):
            layer = {"strides": [stride], "pads_begin": [3], "pads_end": [stride], "groups": groups}
            calls.append(prepare(name, operands, RUN | layer | {"data_format": "NCX"}))
        near, other = (_by_each_kernel(call.problem, call.operands) for call in calls)
        _, expected = next(near)
        for plan, result in other:
            assert_same_bits(result, expected, str(plan))


def _by_each_kernel(problem: Problem, operands: Sequence[Array]) -> Iterator[tuple[Chosen, Array]]:
    """Yield a plan of each kernel on one thread, in pairs and without, with few sums, and its result."""
    view = view_of(problem, [operand.strides for operand in operands], empty(problem).strides)
    machine = Machine(modelled(ISAS[HOST[0]], "fused"))
    smallest_last = sorted(plans(problem, view, machine, 1), key=sums_of, reverse=True)
    found = {(plan.strategy, plan.in_pairs): plan for plan in smallest_last}
    for plan in found.values():
        yield plan, run_plan(plan, problem, operands, empty(problem))
