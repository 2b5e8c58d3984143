"""The table of what a kernel may be handed: every family of kernels, format, bias, old value, memory format, stride.

Families come from the plan's own tables, so that a new one is in this table or fails its test. Operands are small
integers, so that the result is exact. They lie among pages that nobody may touch, and so does all memory of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from convgrad.engines import scratch as kept_memory
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.isas import host_isas
from convgrad.engines.llvm.winograd.run import tiled as winograd_call
from convgrad.engines.numpy import NumPyCall
from convgrad.formats import BF16, F64, FORMATS, Format
from convgrad.plan import choose, passes
from convgrad.plan.cuda.plan import plan as device_plan
from convgrad.plan.cuda.plan import refusal
from convgrad.plan.cuda.recipe import Spec
from convgrad.plan.kernels import KERNELS, Kernel
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.passes import dense_strides, view_of
from convgrad.plan.split_k.recipe import PORTIONS
from convgrad.plan.winograd import constants as winograd_constants
from convgrad.plan.winograd.plans import PositionsPlan
from convgrad.spec import exact_result
from convgrad.spec.activation import RELU
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.operators import SolvesFor, Tensor, solving_for
from convgrad.spec.problem import Problem, posed
from convgrad.spec.winograd import tile_order as tiles
from convgrad.spec.winograd.algorithms import algorithms
from tests.engines.guarded import Array, GuardedMemory, Placed, lying, run_guarded
from tests.support import emulated
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import KINDS, empty, tiled
from tests.support.engine_helpers import lying as lies_as
from tests.support.forward_problems import PROBLEMS, along, unlike
from tests.support.hash_problems import shape_of
from tests.support.helpers import assert_same_bits

Geometry = Conv | Channels
Case = tuple[Geometry, str]  # a geometry and the name of an algorithm, or ""
Run = Callable[[Problem, Sequence[Array], Array, Isa, bool, int], str]  # returns what ran

LAYOUTS = tuple(product(("NXC", "NCX"), ("XIO", "OIX")))
BIASES: dict[str, Callable[[int], int]] = {  # the stride of a bias in bytes, from the size of an element
    "dense": lambda size: size, "every second": lambda size: 2 * size, "backwards": lambda size: -size,
    "one value": lambda size: 0, "in records": lambda size: 2 * size + 1,
}  # fmt: skip
WITH_BIAS = ("dst", "src", "bias_add")
MULTIPLY_ADDS, ALTERNATIVES = 500_000, 3
CHANNELS = (Channels(3, 20, (9, 9)), Channels(40, 33, (17,)), Channels(2, 5, (3, 4, 5)), Channels(2, 300, ()))
MANY_ROWS = Conv(3, 1, 9, 17, (along(10, 3), along(10, 3)))  # a GPU packs the weights, if they are first by channels
# The taps of Winograd's problems: with one axis, axes of one tap, five taps, and an axis that is summed directly.
WINOGRAD_PASSES = ("weights", "dst", "src")
TAPS = ((3,), (5,), (3, 3), (5, 5), (1, 3), (3, 1), (3, 5), (5, 3), (7, 3), (4, 5), (3, 3, 3), (3, 1, 1), (2, 3, 5))


@dataclass(frozen=True)
class Family:
    """Kernels of one kind for a pass."""

    kernel: str  # its name for all passes
    solves_for: SolvesFor
    cases: Callable[[Problem, Isa], bool]  # whether it computes a problem
    run: Run
    algorithms: tuple[str, ...] = ("",)
    is_crossed: bool = True  # whether all formats of operands go with all of results
    with_f64: bool = False

    @property
    def name(self) -> str:
        return f"{self.kernel} for {self.solves_for}"

    @property
    def is_winograd(self) -> bool:
        return self.run is _run_winograd


@dataclass(frozen=True)
class Group:
    """The rows of a family that share formats and memory formats; ``turn`` deals geometries, kernels and strides."""

    family: Family
    operand: Format
    output: Format
    layouts: tuple[str, str]
    turn: int

    def __str__(self) -> str:
        return f"{self.family.name}, {self.operand} to {self.output}, {' '.join(self.layouts)}"


@dataclass(frozen=True)
class Row:
    """What differs between the rows of a group; ``bias`` is a name of BIASES, or "" for none."""

    bias: str
    accumulate: bool
    activation: str
    strided: bool


# -- families ----------------------------------------------------------------------------------------------------------


def families() -> list[Family]:
    """Return all families: the candidates of the planner, Winograd's algorithms, kernels for GPUs, NumPy's engine."""
    return [*_direct(), *_winograd(), *_of_gpu(), *_numpy()]


def _direct() -> Iterator[Family]:
    for solves_for, kernels in KERNELS.items():
        for one in kernels:
            yield Family(one.name, _pass(solves_for), partial(_is_supported, one), partial(_run_direct, one))


def _is_supported(kernel: Kernel, problem: Problem, isa: Isa) -> bool:
    return _supports(kernel, problem, dense_strides(problem), isa)


def _supports(kernel: Kernel, problem: Problem, strides: Sequence[tuple[int, ...]], isa: Isa) -> bool:
    view = view_of(problem, strides[:-1], strides[-1])
    return not kernel.unsupported(problem, view, isa) and any(True for _ in kernel.specs(problem, view, isa))


def _run_direct(
    one: Kernel, problem: Problem, given: Sequence[Array], out: Array, isa: Isa, at_end: bool, turn: int
) -> str:
    strides = [array.strides for array in (*given, out)]
    if not _supports(one, problem, strides, isa):
        return ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "KERNELS", {problem.solves_for: (one,)})
        view = view_of(problem, strides[:-1], strides[-1])
        found = choose.plans(problem, view, Machine(isa, l2_bytes=1 << 10 + turn % 8), 1, None)
    kinds = unlike(found, turn) if problem.solves_for in ("dst", "src") else found
    run_guarded(kinds[turn % len(kinds)], problem, [*given], out, at_end)
    return one.name


def _winograd() -> Iterator[Family]:
    """Yield a family for each algorithm and pass."""
    for solves_for, name in product(WINOGRAD_PASSES, sorted({name for kernel in TAPS for name in _named(kernel)})):
        yield Family(
            f"Winograd {name}", _pass(solves_for), lambda problem, _: bool(problem.algorithm),
            _run_winograd, (name,), is_crossed=name == "4x4",
        )  # fmt: skip


def _named(kernel: Sequence[int]) -> tuple[str, ...]:
    return tuple(algorithms(_tiled_conv(kernel, 1)))


def _tiled_conv(kernel: Sequence[int], turn: int) -> Conv:
    """Return a convolution that Winograd computes: of one group or two, with tiles beyond an edge and uneven pads.

    The number of images says how ``_way`` divides the work, because plans are cached by problem.
    """
    extents, groups = {1: (19,), 2: (7, 9), 3: (3, 4, 5)}[len(kernel)], 1 + turn % 2
    axes = (along(n, taps, pads=(taps // 2, (taps - 1) // 2)) for n, taps in zip(extents, kernel, strict=True))
    return Conv(2 + turn % 3, groups, 33 * groups, 35 * groups, tuple(axes))


@contextmanager
def _way(batch: int) -> Iterator[None]:
    """Have Winograd divide its work in one of three ways: as large problems do, in few blocks, or in units of tiles."""
    with pytest.MonkeyPatch.context() as patch:
        if batch == 3:  # cache blocks of rows of tiles; weight gradients by blocks of channels
            patch.setattr(winograd_constants, "MIN_TILES", 1)
            patch.setattr(winograd_constants, "BLOCK", 16)
        elif batch == 4:  # weight gradients whose sums are added later
            patch.setattr(tiles, "MAX_BLOCKS", 1)
            patch.setattr(tiles, "BLOCK", 16)
        yield


def way_of(problem: Problem, plan: Any) -> str:
    """Return how the work of a Winograd plan is divided."""
    if isinstance(plan, PositionsPlan):
        return "by rows" if plan.by_rows else "by results"
    return "by units" if plan.turns.units > 1 else "by blocks" if plan.stored_chains > 1 else "at once"


def winograd_plan(problem: Problem, isa: Isa) -> Any:
    """Return the plan with which a row of Winograd runs."""
    with _way(problem.geometry.batch):
        return passes.winograd_plan(problem, _machine(isa), 1)


def _machine(isa: Isa) -> Machine:
    return Machine(isa, l2_bytes=1 << 20)


def _run_winograd(problem: Problem, given: Sequence[Array], out: Array, isa: Isa, at_end: bool, turn: int) -> str:
    with _way(problem.geometry.batch):
        call = winograd_call(problem, (*[array.strides for array in given], out.strides), _machine(isa), 1)
        call.execute(given, out)
    return way_of(problem, call.plan)


def _of_gpu() -> Iterator[Family]:
    for solves_for, spec in product(KERNELS, get_args(Spec)):

        def cases(problem: Problem, isa: Isa, name: str = spec.name) -> bool:
            strides = dense_strides(problem)
            return not refusal(problem, strides) and name in _launched(problem, strides)

        yield Family(f"GPU {spec.name}", _pass(solves_for), cases, _run_on_gpu)


def _launched(problem: Problem, strides: Sequence[tuple[int, ...]]) -> set[str]:
    made = device_plan(problem, tuple(strides), emulated.PROCESSORS, True)
    return {launch.spec.name for launch in made.launches}


def _run_on_gpu(problem: Problem, given: Sequence[Array], out: Array, isa: Isa, at_end: bool, turn: int) -> str:
    if refusal(problem, [array.strides for array in (*given, out)]):
        return ""
    emulated.run(problem, given, out)
    return "GPU"


def _numpy() -> Iterator[Family]:
    for solves_for in get_args(SolvesFor):
        yield Family("NumPy", solves_for, lambda problem, isa: True, _run_numpy, with_f64=True)


def _run_numpy(problem: Problem, given: Sequence[Array], out: Array, isa: Isa, at_end: bool, turn: int) -> str:
    call = NumPyCall(problem, (*[array.strides for array in given], out.strides))
    call.at([address_of(array) for array in given], address_of(out), (given, out))
    return "NumPy"


def _pass(solves_for: str) -> SolvesFor:
    return next(name for name in get_args(SolvesFor) if name == solves_for)


# -- the table ---------------------------------------------------------------------------------------------------------


@cache
def groups() -> list[Group]:
    """Return the groups of all families: all formats of operands and results in all layouts.

    Winograd's kernels take long to compile. Of each two of these, all values go together for one algorithm; for others,
    each format of operands goes with one of results in one layout.
    """
    found = []
    for number, family in enumerate(families()):
        formats = [FORMATS[name] for name in ALL_TYPES] + [F64] * family.with_f64
        some = [(*pair, lies) for pair, lies in product(product(formats, formats), LAYOUTS)]
        if family.is_winograd:
            places = product(range(5), range(5)) if family.is_crossed else ((at, (at + number) % 5) for at in range(5))
            some = [(formats[i], formats[j], LAYOUTS[(i + j) % len(LAYOUTS)]) for i, j in places]
        legal = [each for each in some if each[0] is F64 or each[1] is not F64]
        found += [Group(family, *each, number + turn) for turn, each in enumerate(legal)]
    return found


def rows(group: Group) -> list[Row]:
    """Return the rows of a group: biases and activations where the pass has any, old values, operands with strides.

    Winograd's kernels are compiled for old values and activations, so that its groups have strides or have none.
    """
    has_bias = group.family.solves_for in WITH_BIAS
    biases = ([] if group.family.solves_for == "bias_add" else [""]) + [*BIASES] * has_bias
    strided = ((group.turn + group.turn // 5) % 2 == 1,) if group.family.is_winograd else (False, True)
    axes = (biases, (False, True), ("", RELU)[: 1 + has_bias], strided)
    return [Row(*each) for each in product(*axes)]


def _geometries(group: Group) -> Iterator[Case]:
    if group.family.algorithms != ("",):
        for kernel, name in product(TAPS, group.family.algorithms):
            if name in _named(kernel):
                yield _tiled_conv(kernel, group.turn), name
    elif group.family.solves_for in ("bias", "bias_add"):
        yield from ((each, "") for each in CHANNELS)
    else:
        yield from ((each, "") for each in (MANY_ROWS, *PROBLEMS.values()) if each.multiply_adds <= MULTIPLY_ADDS)


def problem_of(group: Group, case: Case, with_bias: bool) -> Problem:
    """Return the problem of a group. Data gradients with a bias are forward passes of transposed layers."""
    data, weights = group.layouts
    layouts: dict[Tensor, str] = {"src": data, "dst": data, "bias": "NCX"}
    transposed = group.family.solves_for == "src" and with_bias
    layouts["weights"] = {"XIO": "XOI", "OIX": "IOX"}[weights] if transposed else weights
    row = solving_for(group.family.solves_for, transposed)
    one = posed(row, case[0], layouts, group.operand, group.output, bias=with_bias)
    return replace(one, algorithm=case[1])


def case_of(group: Group, isa: Isa) -> Case | None:
    """Return the case that a group runs, one of the first that its family computes; None if it computes none."""
    found: list[Case] = []
    with_bias = group.family.solves_for in WITH_BIAS
    for case in _geometries(group):
        if group.family.cases(problem_of(group, case, with_bias), isa):
            found.append(case)
        if len(found) == ALTERNATIVES:
            break
    return found[group.turn % len(found)] if found else None


def _values(problem: Problem, rng: np.random.Generator, row: Row) -> list[Array]:
    """Return canonical operands of small integers and last what the output holds before, as the layouts have them."""
    made = []
    for tensor, layout in zip(problem.operands, problem.layouts, strict=False):
        values = rng.integers(-2, 3, shape_of(problem, tensor)).astype(problem.operand_format.dtype)
        made.append(values if values.ndim == 1 else lies_as(values, layout))
    if row.bias == "one value":
        made[-1][...] = made[-1][0]
    out = empty(problem)
    if problem.accumulate:
        out[...] = rng.integers(-8, 9, out.shape)
    return [*made, out]


def _strides(row: Row, arrays: Sequence[Array], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return the strides of operands and output: those that they have, or any. A bias has those of its row."""
    chosen = [lying(rng, array, strided=True) if row.strided else array.strides for array in arrays]
    if row.bias:
        chosen[-2] = (BIASES[row.bias](arrays[-2].itemsize),)
    return chosen


def isa_of(group: Group) -> Isa:
    """Return the instruction set of a group; those that multiply pairs, and tiles, are for operands in bf16."""
    if group.family.kernel == PORTIONS and group.turn % 2:
        return tiled(KINDS[0])
    names = [one.name for one in host_isas() if not one.pairs or group.operand is BF16]
    return ISAS[names[group.turn % len(names)]]


def run_group(group: Group, some: Sequence[Row] | None = None) -> Counter[str]:
    """Run rows of a group, at the page behind and at the page before, and compare with exact results.

    Return how many rows ran, by the name of what ran; "" if the family does not take such strides.
    """
    isa, done = isa_of(group), Counter[str]()
    case = case_of(group, isa)
    if case is None:
        return done
    for row in rows(group) if some is None else some:
        problem = replace(
            problem_of(group, case, bool(row.bias)), accumulate=row.accumulate, activation=row.activation
        )  # fmt: skip
        rng = np.random.default_rng([83, group.turn, row.strided])  # rows with strides share them, and so kernels
        arrays = _values(problem, rng, row)
        strides = _strides(row, arrays, rng)
        *operands, old = arrays
        answer = exact_result.evaluate(problem, operands, old if row.accumulate else None)
        assert answer.magnitude.max(initial=0) <= 2**24
        expected, what = np.ascontiguousarray(answer.rounded(problem)), f"{group}, {row}, {problem} {strides} {isa}"
        ran = ""
        for at_end in (True, False):
            ran = _among_pages(group, problem, arrays, strides, expected, isa, at_end, what)
        unaligned = row.bias == "in records" and group.family.run is _run_on_gpu  # GPUs refuse such strides
        assert ran or row.strided or unaligned, f"the family did not run: {what}"
        done[ran] += 1
    return done


def _among_pages(
    group: Group, problem: Problem, arrays: Sequence[Array], strides: Sequence[tuple[int, ...]], expected: Array,
    isa: Isa, at_end: bool, what: str,
) -> str:  # fmt: skip
    """Run a row in one placement, compare, and return what ran, or "" if the family takes no such strides."""
    placed = [Placed(array, each, at_end) for array, each in zip(arrays, strides, strict=True)]
    taken = GuardedMemory(at_end)
    *given, out = (each.array for each in placed)
    before = [each.tobytes() for each in given]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("own", "shared"):
            patch.setattr(kept_memory, name, taken)
        ran = group.family.run(problem, given, out, isa, at_end, group.turn)
    if ran:
        assert_same_bits(np.ascontiguousarray(out), expected, what)
        assert [each.tobytes() for each in given] == before, f"an operand changed: {what}"
        intact = [each.intact() for each in placed] + [each.intact() for each in taken.given]
        assert all(intact), f"bytes around an array changed: {what}"
    return ran
