"""Small forwards and data gradients of every kind, as values, and every way of cutting a plan of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from convgrad.formats import FORMATS
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.gemm.cuts import panels_of
from convgrad.plan.gemm.spec import GemmPlan, GemmSpec
from convgrad.plan.kernels import FAMILIES
from convgrad.plan.kn2row.spec import Kn2rowPlan, output_block_count
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.passes import plans, view_of
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.spec.geometry import Axis, Conv, effective_kernel
from convgrad.spec.operators import Tensor
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, Array, empty
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.roles import every_second_backwards, negative, record_field

ROLES = ("dst", "src")
TYPES = ("f32", "bf16", "f16")
MIXED = [(operand, output) for operand in TYPES for output in TYPES]
LIES = ("NXC XIO", "NCX OIX", "NXC OIX", "NCX XIO", "NXC XIO apart", "NCX OIX backwards", "NXC XIO in records")
DEALT = 18  # numbers that deal each of these; more would only be other mixtures
VIEWS = {"": np.asarray, "apart": every_second_backwards, "backwards": negative, "in": record_field}
OPERATORS = {  # what is solved for; whether the operator is transposed
    ("dst", False): "Convolution",
    ("src", False): "ConvolutionBackwardData",
    ("src", True): "ConvTranspose",
    ("dst", True): "ConvTransposeBackwardData",
}


def along(
    dst: int, kernel: int, stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (0, 0), rest: int = 0
) -> Axis:
    """An axis of so many destination positions, and ``rest`` source positions behind the last that is met."""
    src = stride * (dst - 1) + effective_kernel(kernel, dilation) + rest - sum(pads)
    return Axis(src, dst, kernel, stride, dilation, *pads)


AnyPlan = GemmPlan | SpatialStencilPlan | Kn2rowPlan

SAME = along(5, 3, pads=(1, 1))

# Channels are src's, then dst's: each is summed by one role and is the result of the other.
PROBLEMS = {
    "dense": Conv(2, 1, 17, 33, (SAME, along(7, 3, pads=(1, 1)))),
    "dense, full vectors": Conv(1, 1, 32, 64, (SAME, SAME)),
    "1 and 1 channels": Conv(3, 1, 1, 1, (along(9, 4, pads=(2, 1)),)),
    "1 and 31 channels": Conv(2, 1, 1, 31, (along(4, 3), SAME)),
    "3 and 16 channels": Conv(1, 1, 3, 16, (along(4, 7, 2, pads=(3, 3)), along(5, 7, 2, pads=(3, 2)))),  # taps apart
    "4 and 15 channels": Conv(1, 1, 4, 15, (SAME, SAME)),  # one channel too few for that
    "5 and 16 channels": Conv(1, 1, 5, 16, (SAME, SAME)),  # one result too many
    "17 taps apart": Conv(1, 1, 2, 16, (along(25, 17, pads=(8, 8)),)),  # two levels of the tree of taps
    "taps apart, each of blocks": Conv(1, 1, 4, 300, (along(4, 3, pads=(1, 1)),)),
    "257 taps apart": Conv(1, 1, 1, 16, (along(3, 257, pads=(130, 126)),)),  # three levels
    "2 and 48 channels": Conv(2, 1, 2, 48, (along(3, 2, 2), along(4, 3, 2, pads=(0, 1)))),
    "255 channels": Conv(1, 1, 255, 6, (along(4, 3, pads=(1, 1)),)),
    "256 channels": Conv(1, 1, 5, 256, (along(4, 3, pads=(1, 1)),)),
    "257 channels": Conv(1, 1, 257, 5, (along(4, 3, pads=(1, 1)),)),
    "300 channels": Conv(1, 1, 6, 300, (along(3, 2), along(2, 2))),
    "513 channels": Conv(2, 1, 513, 7, (along(3, 2, pads=(1, 0)),)),
    "17 blocks": Conv(1, 1, 5, 128, (along(6, 5, pads=(2, 2)), along(5, 7, pads=(3, 3)))),
    "one tap": Conv(2, 1, 33, 48, (along(5, 1), along(7, 1))),
    "one tap, 600 channels": Conv(1, 1, 600, 20, (along(23, 1),)),
    "one tap of a stride": Conv(2, 1, 16, 31, (along(4, 1, 2, rest=1), along(3, 1, 3, rest=2))),  # much meets no tap
    "one tap, the last absent": Conv(2, 1, 16, 31, (along(4, 1, 2, pads=(0, 1)), along(3, 1, 3, pads=(0, 1)))),
    "one tap, padded": Conv(1, 1, 16, 17, (along(6, 1, pads=(1, 2)),)),
    "one position": Conv(40, 1, 17, 33, (along(1, 1),)),
    "stride 2": Conv(2, 1, 16, 33, (along(4, 3, 2, pads=(1, 0)), along(5, 3, 2, pads=(1, 1)))),
    "stride 3 beyond the kernel": Conv(1, 1, 17, 16, (along(4, 2, 3, rest=2), along(3, 2, 5, rest=1))),
    "stride 4, kernel 8": Conv(1, 1, 9, 17, (along(5, 8, 4, pads=(2, 2)),)),
    "dilated": Conv(1, 1, 17, 16, (along(5, 3, 1, 2, (2, 2)), along(6, 3, 1, 3, (3, 3)))),
    "dilated and strided": Conv(1, 1, 16, 18, (along(4, 3, 2, 3, (3, 2), 1), along(4, 4, 6, 4, (5, 1)))),
    "dilated more than a tap's reach": Conv(2, 1, 8, 9, (along(5, 3, 1, 7, (7, 7)),)),
    "asymmetric pads": Conv(2, 1, 16, 17, (along(6, 3, pads=(0, 3)), along(4, 4, pads=(3, 0)))),
    "pads beyond the kernel": Conv(1, 1, 16, 17, (along(11, 3, pads=(5, 4)), along(5, 2, pads=(0, 3)))),
    "a kernel larger than the image": Conv(2, 1, 16, 17, (along(3, 9, pads=(4, 4)), along(2, 7, pads=(2, 4)))),
    "positions that meet nothing": Conv(1, 1, 17, 33, (along(9, 2, 1, 6, (5, 5)),)),
    "output padding": Conv(2, 1, 16, 33, (along(3, 3, 2, pads=(1, 1), rest=1), along(4, 4, 4, 2, (1, 2), 3))),
    "three axes": Conv(1, 1, 16, 17, (along(3, 2), SAME, along(2, 3, 2, pads=(1, 0)))),
    "four axes": Conv(1, 1, 5, 18, (along(2, 2), along(3, 1, 2), along(2, 3, pads=(1, 1)), along(2, 2, 1, 2))),
    "groups": Conv(2, 3, 21, 51, (SAME, along(3, 3, 2, pads=(1, 0)))),
    "groups of 16": Conv(1, 4, 64, 64, (along(6, 3, pads=(1, 1)),)),
    "depthwise": Conv(2, 19, 19, 19, (SAME, along(4, 3, pads=(1, 1)))),
    "depthwise, full vectors": Conv(1, 32, 32, 32, (SAME, along(17, 5, pads=(2, 2)))),
    "depthwise, set conflicts": Conv(1, 256, 256, 256, (along(2, 2), along(8, 3, pads=(1, 1)))),
    "depthwise of strides and dilations": Conv(1, 17, 17, 17, (SAME, along(9, 4, 3, 2, (3, 2), 1))),
    "depthwise, blocks cut a row": Conv(1, 16, 16, 16, (along(3, 2), along(7, 150, pads=(80, 72)))),  # cut within a row
    "depthwise, meeting nothing": Conv(1, 5, 5, 5, (along(2, 1, pads=(1, 0)), along(9, 3, pads=(5, 4)))),
    "groups of 6 to 10": Conv(1, 9, 54, 90, (along(2, 2), along(8, 3, pads=(1, 1)))),
    "groups of 8": Conv(1, 4, 32, 32, (along(7, 3, 2, pads=(1, 1)),)),
    "depthwise multiplied": Conv(1, 7, 7, 21, (along(4, 5, 2, pads=(2, 2)), SAME)),
    "groups of one tap": Conv(3, 2, 34, 32, (along(7, 1),)),
    "many images of few positions": Conv(37, 1, 16, 17, (along(2, 2, pads=(1, 0)), along(2, 2))),
    "a long row": Conv(1, 1, 6, 17, (along(120, 9, pads=(4, 4)),)),
    "nothing beside the pads": Conv(1, 1, 3, 17, (along(4, 3, pads=(2, 3)),)),
    "17 and 3 channels": Conv(2, 1, 17, 3, (SAME, along(40, 3, 1, 2, (2, 2)))),
    "3 and 17 channels of a stride": Conv(2, 1, 3, 17, (along(6, 5, 2, pads=(2, 1)), along(9, 4, 3, 1, (1, 2), 1))),
    "4 and 19 channels, dilated": Conv(1, 1, 4, 19, (along(7, 3, 1, 2, (2, 2)), along(6, 3, 2, 3, (3, 2), 1))),
    "3 and 16 channels, three axes": Conv(1, 1, 3, 16, (along(3, 2), SAME, along(4, 3, 2, pads=(1, 0)))),
    "2 and 33 channels, one tap": Conv(2, 1, 2, 33, (along(6, 1), along(9, 1))),
    "2 and 16 channels, four axes": Conv(
        2, 1, 2, 16, (along(2, 2), along(5, 3, 2, pads=(1, 1)), along(4, 3, 1, 2, (2, 2)), along(3, 2))
    ),
    "3 and 16 channels, a stride beyond": Conv(1, 1, 3, 16, (along(4, 2, 3, rest=2), along(5, 2, 5, rest=1))),
    "groups along rows": Conv(2, 3, 9, 27, (along(9, 3, 2, pads=(1, 1)), along(40, 5, 1, 2, (4, 3)))),
    "depthwise, two blocks": Conv(1, 3, 3, 3, (along(9, 17, pads=(8, 8)), along(20, 17, pads=(8, 8)))),
    "depthwise, a phase of no taps": Conv(2, 16, 16, 16, (along(4, 3, 2, 2, (1, 1)), along(9, 3, 2, 2, (1, 1)))),
    "8 and 3 channels, a phase of no taps": Conv(1, 1, 8, 3, (along(4, 3, 2, 2, (3, 1)), along(9, 3, 2, 2, (1, 1)))),
    "patches": Conv(2, 1, 3, 300, (along(3, 4, 4), along(5, 4, 4))),
    "one dst position": Conv(3, 1, 17, 33, (along(1, 3), along(1, 4))),
    "one dst position along an axis": Conv(2, 1, 5, 300, (along(4, 3), along(1, 6))),
    "one dst position in groups": Conv(2, 2, 10, 600, (along(1, 3, 2),)),
    "one dst position, small groups": Conv(2, 17, 17, 34, (along(1, 7), along(5, 1, 2))),
    "one dst position, 600 channels": Conv(2, 1, 9, 600, (along(1, 2), along(1, 2))),
    "one dst position, padded": Conv(2, 1, 16, 9, (along(1, 3, pads=(1, 0)), along(1, 4, pads=(0, 1)))),
}  # fmt: skip
CASES = list(product(PROBLEMS, ROLES))
NUMBERED = {case: at % DEALT for at, case in enumerate(CASES)}  # few numbers, as each has kernels of its own


@dataclass(frozen=True)
class Small:
    """A problem, canonical operands that lie in some way, the value before, the bits of the specified order."""

    words: str
    lies: str
    seen: Callable[[Array], Array]  # how arrays of a layout are seen
    problem: Problem
    operands: list[Array]
    old: Array
    expected: Array

    def fresh(self) -> Array:
        """A new output that lies as the problem has it: NaN, or the old value."""
        out = self.seen(empty(self.problem))
        if self.problem.accumulate:
            out[...] = self.old
        return out

    def view(self) -> ForwardNest:
        """Return the planner's view of it."""
        seen: ForwardNest = view_of(self.problem, [array.strides for array in self.operands], self.fresh().strides)
        return seen

    def plans(self, isa: Isa, threads: int = 1, l2_bytes: int = 1 << 20) -> list[AnyPlan]:
        """Return all plans there are, the cheapest first."""
        return plans_of(self.problem, self.operands, self.fresh(), isa, threads, l2_bytes)[1]


def plans_of(
    problem: Problem, operands: Sequence[Array], out: Array, isa: Isa, threads: int = 1, l2_bytes: int = 1 << 20
) -> tuple[ForwardNest, list[AnyPlan]]:
    """Return the view of a problem on arrays, and all plans there are, the cheapest first."""
    seen: ForwardNest = view_of(problem, [array.strides for array in operands], out.strides)
    return seen, plans(problem, seen, Machine(isa, l2_bytes=l2_bytes), threads)


def posed(
    conv: Conv, role: str, transposed: bool, types: tuple[str, str], lies: str, accumulate: bool = False,
    bias: bool = False,
) -> Problem:  # fmt: skip
    """Return a problem; a bias only where its operator takes any."""
    data, weights, *_ = lies.split()
    names: tuple[Tensor, ...] = ("dst" if role == "src" else "src", "weights")
    if bias and OPERATORS[role, transposed] in ("Convolution", "ConvTranspose"):
        names = (*names, "bias")
    layouts = {"weights": {"XIO": "XOI", "OIX": "IOX"}[weights] if transposed else weights, "bias": "NCX"}
    operand, output = (FORMATS[name] for name in types)
    return Problem(
        OPERATORS[role, transposed], role, conv, names, role,  # type: ignore[arg-type]
        tuple(layouts.get(tensor, data) for tensor in (*names, role)), operand, output, accumulate,
    )  # fmt: skip


def small(name: str, role: str, number: int) -> Small:
    """Return a problem of the table: its types, layouts, what is added and whose words it has are dealt by a number.

    Half of them are f32 throughout, as only those are read in place.
    """
    types, lies = MIXED[number % len(MIXED)] if number % 2 else MIXED[0], LIES[number % len(LIES)]
    transposed, accumulate = number // 2 % 2 == 1, number % 3 == 2
    problem = posed(PROBLEMS[name], role, transposed, types, lies, accumulate, bias=True)
    bits = np.random.PCG64(number)
    view = VIEWS[(lies.split()[2:] or [""])[0]]
    operands = [view(array) for array in operands_of(problem, bits)]
    old = values(shape_of(problem, problem.output), problem.output_format, bits)
    expected = evaluate_in_order(problem, operands, old)
    words = f"{name}, {problem.operator}, {' to '.join(types)}, {'onto, ' * accumulate}{lies}"
    return Small(words, lies, view, problem, operands, old, expected)


def unlike(found: Sequence[AnyPlan], number: int) -> list[AnyPlan]:
    """Return plans of kernels unlike one another, each of a tile that a number deals."""
    kinds: dict[Any, list[AnyPlan]] = {}
    for plan in sorted(found, key=lambda plan: str(plan.spec)):
        kinds.setdefault(kind_of(plan), []).append(plan)
    return [each[number % len(each)] for each in kinds.values()]


def sums_of(plan: AnyPlan | SplitKPlan) -> int:
    """Return the vectors of sums of a plan's tiles; of few, kernels are compiled soon."""
    if isinstance(plan, SpatialStencilPlan):
        return plan.spec.results * plan.spec.lines * plan.spec.vectors
    if isinstance(plan, SplitKPlan):
        return plan.spec.micro_tile.mr * plan.spec.micro_tile.nr * plan.spec.micro_tile.taps
    tile = plan.spec.product if isinstance(plan, Kn2rowPlan) else plan.spec
    return tile.mr * tile.nr


def kind_of(plan: AnyPlan) -> Any:
    """Return what plans share that differ in their tile's height alone; those of another body are all alike."""
    spec = plan.spec
    if isinstance(spec, GemmSpec):
        return spec.nr, spec.single_vector, spec.b.in_place, spec.body
    return spec.body


def dealt(one: Small, number: int, threads: int = 1) -> AnyPlan:
    """Return the plan that a number deals to a problem, instruction set by instruction set."""
    found = unlike(one.plans(ISAS[HOST[number // 3 % len(HOST)]], threads), number % 2)
    return found[number // 2 * len(found) // (DEALT // 2)]


def recut(plan: AnyPlan, view: ForwardNest, threads: int = 1) -> Iterator[AnyPlan]:
    """Yield a plan cut in other ways: slabs of few positions or all, panels one by one or all, few parts and many.

    In every second way sums wait for more chains.
    """
    if isinstance(plan, Kn2rowPlan):
        yield from _products_recut(plan, view, threads)
        return
    if isinstance(plan, SpatialStencilPlan):
        yield from (replace(plan, parts=(parts,), threads=threads) for parts in {1, min(5, view.groups), view.groups})
        return
    seen = FAMILIES[plan.spec.body].nest(view)
    extents = [axis.extent for axis in seen.axes]
    panels = panels_of(seen, plan.spec)
    blocks = [
        tuple(min(n, 2 + at) for at, n in enumerate(extents)), tuple(extents),
        tuple(n if at == len(extents) - 1 else 1 for at, n in enumerate(extents)),
    ]  # fmt: skip
    if prod(extents) <= 400:
        blocks.append((1,) * len(extents))
    for number, block in enumerate(blocks):
        there = prod(ceil(n / size) for n, size in zip(extents, block, strict=True))
        for at_once, parts in ((1, (1, 1, 1)), (panels, (seen.groups, panels, there)), (panels, (1, 1, min(5, there)))):
            chains = (number + at_once) % 2 * (1 + number)
            yield replace(plan, output_block=block, panels=at_once, parts=parts, threads=threads, pass_chains=chains)


def _products_recut(plan: Kn2rowPlan, view: ForwardNest, threads: int) -> Iterator[Kn2rowPlan]:
    """Yield a plan of kn2row cut in other ways: blocks of one position of each phase, or all; tiles one by one."""
    lines, *inner = view.axes[plan.spec.line :]
    width = plan.spec.product.width
    sizes = 1, 2, view.positions  # neighbouring inner axes have different sizes
    for along, turn in product((len(lines.phases), 3 * len(lines.phases), lines.extent), range(3)):
        across = (sizes[(turn - at) % 3] * len(axis.phases) for at, axis in enumerate(inner, 1 - len(inner)))
        slab = tuple(map(min, (along, *across), (axis.extent for axis in (lines, *inner))))
        there = output_block_count(view, plan.spec, slab)
        for parts, chunk in ((1, width), (min(5, there), 3 * width), (there, 64 * width)):
            if there <= 2000:
                yield replace(
                    plan, output_block=slab, cache_block=chunk, block=chunk // width, parts=(parts,), threads=threads
                )
