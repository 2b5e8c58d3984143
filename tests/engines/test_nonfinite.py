"""NaN and infinity at every position of every operand: they reach what the oracle says, and change no other bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm.execute import executable_of
from convgrad.formats import FORMATS, Format
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.plan.split_k.recipe import OUTER_PRODUCTS, SplitKPlan
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, Array, empty, lying, made, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

SHAPES = [
    "mb2ic3iw5oc2ow5kw3pw1",
    "mb1ic2iw9oc3ow4kw3sw2pw0",
    "mb1ic2iw9oc2ow5kw3dw1pw0",
    "mb2ic2iw2oc2ow2kw5pw2",  # the kernel is larger than the input
    "mb1ic2iw3oc2ow7kw3pw3",  # positions that see padding only
    "g2mb2ic4iw5oc4ow3kw3sw2pw1",
    "g3mb1ic3iw6oc6ow6kw1pw0",
    "mb2ic2iw7oc3ow4kw1sw2pw0",  # source positions that no tap reads
    "mb1ic2ih4iw3oc2oh4ow3kh3kw3ph1pw1",
    "mb1ic2ih5iw4oc2oh3ow2kh3kw2sh2sw2ph1pw0",
    "mb1ic2ih3iw3oc2oh3ow3kh3kw3dh1dw1ph2pw2",
    "mb2ic17iw2oc3ow2kw1pw0",  # one lane more than a vector
    "mb1ic3iw3oc18ow4kw2pw1",
    "mb1ic2id2ih3iw2oc2od2oh3ow2kd3kh3kw3pd1ph1pw1",
    "mb1ic1iw260oc1ow260kw3pw1",  # two blocks
    "mb40ic1ih3oc1oh3kh3ph1",  # packed images in two blocks
    "deconv mb1ic2iw4oc2ow9kw3sw2pw0",
    "deconv g2mb1ic4iw3oc2ow5kw3sw2pw1",
    "deconv mb1ic2ih2iw3oc2oh4ow6kh3kw3sh2sw2ph1pw1",  # output padding
    "deconv mb1ic2iw3oc3ow7kw3dw1pw0",
]
TYPES = ("f32", "bf16", "f16")
NUMBERS = range(2 * len(SHAPES))
QUICK = (0, 3, 5, 6, 11, 35)  # padding, stride, dilation, kernel > input, groups, transposed; all types
SIGNALLING = {"f32": 0xFFA12345, "bf16": 0xFFA1, "f16": 0xFD23}  # NaNs with sign and payload


def problem_of(number: int) -> Problem:
    """Each shape in both layouts, types in turn, some with another output type, some accumulating."""
    words = SHAPES[number // 2].split()
    operand, output = TYPES[number % 3], TYPES[(number // 5) % 3]
    line = f"BWD_W {operand} {('NXC', 'NCX')[number % 2]} {words[-1]}"
    one = problem(" ".join([*words[:-1], line]))
    return replace(one, output_format=FORMATS[output], accumulate=number % 4 == 3)


def some_zeros(shape: tuple[int, ...], layout: str, fmt: Format, rng: np.random.Generator) -> Array:
    """Normal numbers and some zeros of both signs, canonical, lying as the layout has them."""
    values = rng.standard_normal(shape) * rng.choice([1, 1, 1, 1, 0], shape)
    return lying(values.astype(fmt.dtype), layout)


def runners(one: Problem, operands: list[Array], isa: str) -> list[Callable[[Array], None]]:
    """Ways to run: as chosen, and by plans of an instruction set unlike one another; all of the generated engine."""

    def as_chosen(out: Array) -> None:
        assert engines.execute(one, operands, out, 1).engine == "generated"

    ways: list[Callable[[Array], None]] = [as_chosen]
    by_kernel = {}
    for plan in reversed(plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=1 << 10)):
        by_kernel[plan.operands, plan.spec.a.in_place] = plan
    for plan in by_kernel.values():
        call = executable_of(plan, one, operands, empty(one))
        ways.append(lambda out, call=call: call.execute(operands, out))
    return ways


def poisoned(arrays: list[Array]) -> Iterator[str]:
    """Put NaN, inf, -inf at every position of every array, in turn; half of the NaNs have a sign and a payload."""
    for at, array in enumerate(arrays):
        name = {4: "f32", 2: "f16" if array.dtype == np.float16 else "bf16"}[array.itemsize]
        signalling = np.array([SIGNALLING[name]], f"u{array.itemsize}").view(array.dtype)[0]
        for number, index in enumerate(np.ndindex(array.shape)):
            before = array[index]
            for value in (signalling if number % 2 else array.dtype.type(np.nan), np.inf, -np.inf):
                array[index] = value
                yield f"{value} at {index} of operand {at}"
            array[index] = before


def assert_poison_stays(number: int, isa: str) -> int:
    """Assert each result of each poison; return how many reached nothing."""
    one, rng = problem_of(number), np.random.default_rng([41, number])
    conv = one.geometry
    assert isinstance(conv, Conv)
    assert engines.choose(one).engine == "generated"
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape}
    operands = [
        some_zeros(shapes[tensor], layout, one.operand_format, rng)
        for tensor, layout in zip(one.operands, one.layouts, strict=False)
    ]
    old = some_zeros(conv.weights_shape, "OIX", one.output_format, rng) if one.accumulate else None
    ways = runners(one, operands, isa)

    def results() -> list[Array]:
        outs = []
        for way in ways:
            out = empty(one)
            if old is not None:
                out[...] = old
            way(out)
            outs.append(np.ascontiguousarray(out))
        return outs

    (clean, *others), harmless = results(), 0
    assert np.isfinite(clean).all()
    for other in others:
        assert_same_bits(other, clean, SHAPES[number // 2])
    for words in poisoned(operands if old is None else [*operands, old]):
        answer = exact_result.evaluate(one, operands, old)
        strange = ~np.isfinite(answer.value)
        expected = np.where(strange, answer.rounded(one), clean)  # a NaN is the canonical one
        for way, result in enumerate(results()):
            assert_same_bits(result, expected, f"{SHAPES[number // 2]}, way {way}, {words}")
        harmless += not strange.any()
    return harmless


@pytest.mark.every(7)
@tiers("number, isa", product(QUICK, HOST), long=product([one for one in NUMBERS if one not in QUICK], HOST))
def test_poison_reaches_existing_taps_only(number: int, isa: str) -> None:
    harmless = assert_poison_stays(number, isa)
    assert (harmless > 0) == (number // 2 in (4, 7)), "only what no tap meets reaches nothing"


# -- tiles of several taps, which read zeros where taps are absent -----------------------------------------------------

LARGER = (
    "mb2ic3ih12oc16oh12kh5ph2",
    "mb1ic2iw300oc16ow300kw7pw3",  # two blocks of a row
    "mb4ic20ih20oc2oh10kh4sh2ph1",  # src in the lanes
    "mb2ic2ih9oc32oh9kh3dh1ph2",
    "g20mb2ic20ih14oc20oh14kh5ph2",  # groups in lanes
    "g18mb2ic36ih9oc54oh9kh3ph1",
    "g17mb4ic17ih9iw11oc34oh13ow11kh5kw3ph4pw1",  # positions that see padding only
)
EDGES = (0, 1, 2, 5, -3, -2, -1)


def plans_of_several_taps(one: Problem, operands: list[Array], isa: str) -> list[SplitKPlan]:
    """Return plans whose tiles have several taps, unlike one another."""
    plans = plans_for(one, operands, empty(one), ISAS[isa], l2_bytes=1 << 14)
    by_kind = {
        (plan.strategy, plan.operands, plan.spec.b, plan.spec.micro_tile.outer_taps > 1): plan
        for plan in reversed(plans)
        if plan.spec.micro_tile.inner_taps > 1 and plan.spec.body == OUTER_PRODUCTS
    }
    return list(by_kind.values())


@tiers("line, data_format, isa", LARGER, ["NXC", "NCX"], HOST, every=17)
def test_poison_under_tiles_of_several_taps(line: str, data_format: str, isa: str) -> None:
    one, operands = made(f"BWD_W f32 {data_format} {line}")
    plans = plans_of_several_taps(one, operands, isa)
    assert plans, "no tile of several taps"
    rng = np.random.default_rng(7)
    for number in range(10):
        array = operands[number % 2]
        index = (*(int(rng.integers(n)) for n in array.shape[:2]), *(int(rng.choice(EDGES)) for _ in array.shape[2:]))
        before, array[index] = array[index], (np.nan, np.inf, -np.inf)[number % 3]
        expected = evaluate_in_order(one, operands)
        assert not np.isfinite(expected).all() or number % 2 == 0  # src may have what no tap meets
        for plan in plans:
            assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, (line, index, str(plan)))
        array[index] = before


@tiers("line, isa", LARGER, HOST, every=9)  # so that quick cases share kernels with those above
def test_sums_beyond_the_largest_number(line: str, isa: str) -> None:
    """Operands are finite, sums are not: infinity, or NaN where two meet, and nothing of it beside."""
    for fmt, scale in (("f32", 1e19), ("bf16", 1e19)):
        one, operands = made(f"BWD_W {fmt} NXC {line}", scale=scale)
        expected = evaluate_in_order(one, operands)
        assert np.isinf(expected.astype(np.float32)).any()
        for plan in plans_of_several_taps(one, operands, isa):
            assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, (line, fmt, str(plan)))
