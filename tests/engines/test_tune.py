"""Plans chosen by measurement: the same bits, measured once per kind of problem, kept for later processes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.engines.llvm import isas, tune
from convgrad.engines.llvm.execute import predicted
from convgrad.errors import InvalidAttributeError
from convgrad.formats import FORMATS
from convgrad.plan.passes import dense_strides, plan, view_of
from tests.support.children import Layer
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import empty, made
from tests.support.helpers import assert_same_bits
from tests.support.roles import LAYOUTS, WRITABLE, memory
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not isas.host_isas(), reason="there are no kernels")
LINE = "FWD_D f32 NCX mb4ic32ih14oc32oh14kh3ph1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Measure in few rounds, forget earlier measurements, and keep results in a new directory."""
    monkeypatch.setattr(tune, "ROUNDS_S", 0.0)
    monkeypatch.setattr(tune, "SAMPLE_S", 1e-4)
    tune.fastest.cache_clear()
    with convgrad.kernel_cache(tmp_path):
        yield
    tune.fastest.cache_clear()


def layers(count: int) -> list[Layer]:
    """Return layers of all passes, types and memory formats."""
    rng = np.random.default_rng(38)
    return [
        Layer(
            (int(rng.integers(5, 20)), int(rng.integers(5, 20))), (3, 3), (groups * inner, groups * inner),
            int(rng.integers(1, 6)), groups, int(rng.integers(1, 3)), 1, 1, str(rng.choice(["f32", "bf16", "f16"])),
            None, str(rng.choice(["NXC", "NCX"])), ("weights", "dst", "src")[number % 3],
        )
        for number in range(count)
        for groups, inner in [((1, 24), (16, 1), (4, 8))[number // 3 % 3]]
    ]  # fmt: skip


@pytest.mark.every(4)
@tiers("seed", range(4), long=range(4, 90))
def test_same_bits(seed: int) -> None:
    layer = layers(90)[seed]
    expected = layer(2)
    with convgrad.tune():
        assert layer(2).tobytes() == expected.tobytes()


def test_accumulation_adds_once() -> None:
    """Measurements write to memory of their own, not to the output."""
    src, diff_dst = (np.ones((2, 9, 9, channels), np.float32) for channels in (8, 16))
    out = np.full((3, 3, 8, 16), 5, np.float32)
    with convgrad.tune():
        convgrad.convolution_backward_weights(
            src, diff_dst, (3, 3, 8, 16), pads_begin=1, pads_end=1, out=out, accumulate=True
        )
    assert (out[1, 1] == 5 + 2 * 81).all()


@tiers("fmt, lies", ALL_TYPES, LAYOUTS, every=37)
def test_views_of_any_strides(fmt: str, lies: str) -> None:
    """Operands and results of any type are measured in memory of their strides, which may be no whole elements."""
    rng, dtype = np.random.default_rng(4), FORMATS[fmt].dtype
    plain = [rng.integers(-2, 3, shape).astype(dtype) for shape in ((1, 5, 7, 4), (3, 3, 4, 8), (8,))]
    operands = [LAYOUTS[lies](each) for each in plain]
    expected = convgrad.convolution(*operands)
    out = LAYOUTS[lies](np.zeros(expected.shape, dtype)) if lies in WRITABLE else None
    with convgrad.tune():
        got = convgrad.convolution(*operands, out=out)
    assert_same_bits(np.ascontiguousarray(got), expected, lies)


def test_measured_arrays_lie_in_their_memory() -> None:
    """Of three elements of four bytes, five bytes apart, the last one ends at byte 14."""
    problem, _ = made("FWD_D f32 NXC mb1ic1iw3oc1ow3kw1pw0")
    strides = ((15, 15, 5), (4, 4, 4), (-15, 15, -5))
    for array, steps in zip(tune._arrays(problem, strides), strides, strict=True):
        begin, end = np.lib.array_utils.byte_bounds(array)
        first, last = np.lib.array_utils.byte_bounds(memory(array))
        assert array.strides == steps
        assert memory(array) is not array
        assert first <= begin < end <= last


def test_only_elements_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are 256 MiB apart, as in a mapped file, take no memory between them."""
    resource = pytest.importorskip("resource")
    problem, _ = made(LINE)
    src, weights, dst = dense_strides(problem)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arrays = tune._arrays(problem, ((1 << 28, *src[1:]), weights, (1 << 28, *dst[1:])))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began < 1 << 16  # KiB
    assert all(np.ptp(array) > 1 for array in arrays[:-1])


def test_images_farther_apart_than_memory() -> None:
    """The plan of the cost model computes them."""
    problem, _ = made(LINE)
    src, *others = dense_strides(problem)
    strides, machine = ((1 << 46, *src[1:]), *others), isas.machine(isas.host_isas()[0])
    chosen = tune.fastest(problem, strides, machine, 2)
    assert chosen == predicted(problem, strides, machine, 2)
    assert not chosen.measured_ms


def test_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calls and later processes use what the kernel cache keeps; without a cache, it is kept in memory."""
    problem, _ = made(LINE)
    strides, machine = dense_strides(problem), isas.machine(isas.host_isas()[0])
    calls: list[int] = []
    times = tune.measured

    @functools.wraps(times)
    def counting(*given: Any) -> list[float]:
        calls.append(0)
        return times(*given)

    monkeypatch.setattr(tune, "measured", counting)
    first = tune.fastest(problem, strides, machine, 2)
    tune.fastest.cache_clear()  # as in another process
    assert tune.fastest(problem, strides, machine, 2) == first
    assert calls == [0]
    assert tune.fastest(problem, strides, machine, 1).measured_ms
    with convgrad.kernel_cache(None):
        tune.fastest(problem, strides, machine, 3)
        tune.fastest(problem, strides, machine, 3)
    assert calls == [0] * 3


def test_a_gain_within_noise_changes_nothing() -> None:
    """The plan of the cost model stays unless another is 3 % faster."""
    problem, _ = made(LINE)
    strides, machine = dense_strides(problem), isas.machine(isas.host_isas()[0])
    found = tune._candidates(problem, strides, machine, 1)
    assert found[0] == plan(problem, view_of(problem, strides[:-1], strides[-1]), machine, 1)
    assert 1 < len(found) <= tune.MAX_PLANS
    times = [1.0] * len(found)
    for second, chosen in ((0.98, 0), (0.96, 1)):
        times[1] = second
        best = tune._choice(found, times)
        assert (best.spec, best.measured_ms) == (found[chosen].spec, times[chosen])
        others = {each.strategy for each in best.rejected if each.slower}
        assert others == {each.summary for each in found} - {best.summary}


def test_only_inside_the_context() -> None:
    shapes = (4, 14, 14, 32), (3, 3, 32, 32)
    outside = convgrad.explain("Convolution", *shapes).plan
    with convgrad.tune():
        inside = convgrad.explain("Convolution", *shapes).plan
        with convgrad.tune(False):
            assert convgrad.explain("Convolution", *shapes).plan == outside
    assert inside is not None
    assert outside is not None
    assert inside.measured_ms > 0 == outside.measured_ms
    assert " predicted, " in str(inside)
    problem, operands = made(LINE)
    out = empty(problem)
    strides = (*[each.strides for each in operands], out.strides)
    assert engines.ready(problem, strides).planner is predicted  # type: ignore[attr-defined]
    with convgrad.tune():
        assert engines.ready(problem, strides).planner is tune.fastest  # type: ignore[attr-defined]


def test_refuses_a_number() -> None:
    with pytest.raises(InvalidAttributeError, match="tune must be True or False; got 3"), convgrad.tune(3):  # type: ignore[arg-type]
        pass


def test_winograd_has_one_plan() -> None:
    src, weights = np.ones((2, 16, 16, 32), np.float32), np.ones((3, 3, 32, 32), np.float32)
    with convgrad.tune(), convgrad.max_error(64):
        assert (convgrad.convolution(src, weights) == 288).all()
