"""DOING it: the generated engine where it applies, the NumPy engine elsewhere; which and why is a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import numpy as by_numpy
from convgrad.engines import products
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.pools import helped
from convgrad.engines.settings import accuracy, cap, count
from convgrad.engines.starting import apart, forked_with
from convgrad.formats import Format, of_dtype
from convgrad.plan.reach import unsupported
from convgrad.spec.chosen import DIRECT, in_variant
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.rules import refuse
from convgrad.spec.samples import in_parts, is_product

if TYPE_CHECKING:
    from convgrad.engines.llvm.execute import Executable, Lies
    from convgrad.engines.llvm.winograd.stage import Tiled
    from convgrad.plan.machine import Isa, Machine
    from convgrad.plan.recipe import Chosen

Array = NDArray[Any]
REMEMBERED = 256  # calls that are known at once


@dataclass(frozen=True)
class Choice:
    """Which engine computes a problem; ``reason`` says why not the generated one, and is empty where it does."""

    engine: str  # generated, numpy
    reason: str
    isa: Isa | None

    def __str__(self) -> str:
        return f"generated, {self.isa}" if self.engine == "generated" else f"numpy: {self.reason}"


_loading = forked_with()  # no child inherits modules and a compiler that are half loaded


@cache
def _generated() -> tuple[ModuleType, Callable[..., Executable]]:
    """Return what makes and runs kernels; LLVM is loaded at the first one, not before."""
    with _loading:
        return apart(_load)


def _load() -> tuple[ModuleType, Callable[..., Executable]]:
    from convgrad.engines.llvm import execute, isas  # noqa: PLC0415

    isas.supported()  # what tries an instruction takes the compiler's lock, which a fork takes before the one held here
    return isas, execute.executable


@cache
def _of_pieces() -> tuple[ModuleType, ModuleType]:
    """Return what adds sums of pieces, and what computes norms and scales, by kernels; few programs load them."""
    with _loading:
        return apart(_load_pieces)


def _load_pieces() -> tuple[ModuleType, ModuleType]:
    from convgrad.engines.llvm import added, samples  # noqa: PLC0415

    return added, samples


@cache
def _of_tiles() -> Callable[..., Tiled]:
    """Return what makes and runs kernels of tiles; few programs load them."""
    with _loading:
        return apart(_load_tiles)


def _load_tiles() -> Callable[..., Tiled]:
    from convgrad.engines.llvm.winograd.run import tiled  # noqa: PLC0415

    return tiled


def choose(problem: Problem) -> Choice:
    """Return the engine for a problem on this machine."""
    if reason := unsupported(problem):
        return Choice("numpy", reason, None)
    isas, _ = _generated()
    isa = isas.isa()
    return Choice("numpy", isas.why_no_isa(), None) if isa is None else _by_kernels(isa)


@cache
def _by_kernels(isa: Isa) -> Choice:
    return Choice("generated", "", isa)


def within(problem: Problem, max_error: float | None) -> Problem:
    """Return a problem in the variant that an accuracy admits, as asked of a call or of the context.

    The NumPy engine has none: it sums directly, whatever is admitted.
    """
    most = accuracy(max_error, problem.operator)
    return problem if most <= DIRECT or choose(problem).isa is None else in_variant(problem, most)


def machine_of(problem: Problem) -> Machine | None:
    """Return this machine as plans see it; None where the generated engine is not the choice."""
    isa = choose(problem).isa
    return None if isa is None else _generated()[0].machine(isa)


def plan_of(problem: Problem, machine: Machine, threads: int | None = None) -> Chosen:
    """Return the plan of the generated engine, which must be the choice, on dense row-major arrays."""
    from convgrad.plan.passes import dense_view, plan  # noqa: PLC0415  (came with the kernels)

    return plan(problem, dense_view(problem), machine, count(threads))


def scratch_of(problem: Problem, chosen: Chosen) -> int:
    """Return what a plan of ``plan_of`` takes in scratch, of all threads."""
    from convgrad.plan.passes import scratch_bytes  # noqa: PLC0415

    return scratch_bytes(problem, chosen)


def execute(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> Choice:
    """Compute a problem from canonical operands into the canonical view ``out``, and say which engine did."""
    call = ready(problem, (*[array.strides for array in operands], out.strides), threads)
    call.on(operands, out)
    return call.choice


class Ready:
    """A problem on canonical memory that lies in one way: computed from nothing more than where that begins.

    The engine keeps tables and kernels of the latest calls; here they are but remembered, unless it is ``held``.
    """

    __slots__ = ("_found", "_held", "choice", "lies", "problem", "threads")

    def __init__(self, choice: Choice, problem: Problem, lies: Lies, threads: int) -> None:
        self.choice, self.problem, self.lies, self.threads = choice, problem, lies, threads
        self._found: Callable[[], Executable | Tiled | None] = _nothing
        self._held: Executable | Tiled | None = None

    def __call__(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute from operands that begin at these addresses; the caller has seen to it that ``keep`` is that memory.

        An operand of no elements may begin anywhere.
        """
        if self.choice.isa is None:
            by_numpy.execute(self.problem, *self._arrays(operands, out))
            return
        call = self._found() or self._executable()
        if call.plan.threads > 1 and not helped(call.plan.threads, call.plan.time_ms):
            call = _executable(self.choice.isa, self.problem, self.lies, 1)  # the same bits, and nothing is shared
        call.at(operands, out, keep)

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute from arrays that lie so."""
        if self.choice.isa is None:
            by_numpy.execute(self.problem, operands, out)
        else:
            self([address_of(array) for array in operands], address_of(out), (operands, out))

    def held(self) -> Ready:
        """Make ready what there is to make ready, and keep it."""
        if self.choice.isa is not None:
            self._held = self._executable()
        return self

    def _executable(self) -> Executable | Tiled:
        assert self.choice.isa is not None, "NumPy's engine has none"
        call = _executable(self.choice.isa, self.problem, self.lies, self.threads)
        self._found = ref(call)
        return call

    def _arrays(self, operands: Sequence[int], out: int) -> tuple[list[Array], Array]:
        problem = self.problem
        dtype, shapes = problem.operand_format.dtype, canonical_shapes(problem)
        *given, to = self.lies
        arrays = [array_at(*each, dtype) for each in zip(operands, shapes, given, strict=False)]
        return arrays, array_at(out, shapes[-1], to, problem.output_format.dtype)


def _nothing() -> None:
    return None


def ready(problem: Problem, lies: Lies, threads: int | None = None) -> Ready:
    """Return the call of a problem on memory of these strides, those of the operands and last of the output."""
    return _ready(problem, lies, count(threads), cap())


@lru_cache(maxsize=REMEMBERED)
def _ready(problem: Problem, lies: Lies, threads: int, cap: str) -> Ready:
    return Ready(choose(problem), problem, lies, threads)


def norms2(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> None:
    """Compute the squared norm of each sample's gradient: ``problem`` is that of one, operands hold all of them."""
    choice = choose(problem)
    if is_product(problem):
        squares = by_numpy.squares if choice.isa is None else partial(_of_pieces()[1].squares_of, choice.isa)
        products.norms2(problem, operands, out, squares)
        return
    norms = out
    for part, given in in_parts(problem, operands):
        if choice.isa is None:
            by_numpy.norms2(part, given, norms)
        elif len(out):
            _of_pieces()[1].norms2(part, given, norms, _generated()[0].machine(choice.isa), count(threads))
        if norms is out:
            norms = np.empty_like(out)
        else:
            out += norms


def scale(choice: Choice, data: Array, factors: Array, out: Array, threads: int | None = None) -> None:
    """Compute out[n] = data[n] * factors[n], rounded once to the factors' type; all are row-major."""
    fmt = of_dtype(data.dtype)
    if choice.isa is None or fmt is None or not data.dtype.isnative:
        by_numpy.scale(data, factors, out)
    else:
        _of_pieces()[1].scale(data, fmt, factors, out, choice.isa, count(threads))


def add_up(terms: Sequence[Array], out: Array, fmt: Format, accumulate: bool) -> None:
    """Write the sum of one or more dense f32 arrays, from the first to the last, into a dense array of a format.

    +0 follows, the old value if ``accumulate``, one rounding: as of every sum. Rule P2 refuses it without kernels.
    """
    isas, _ = _generated()
    isa = isas.isa()
    if isa is None:  # P2
        refuse("P2", "join", f"sums in pieces are added by a kernel, which there is none of: {isas.why_no_isa()}")
    _of_pieces()[0].add_up(isa, terms, out, fmt.name, accumulate)


def memory_bytes(problem: Problem, operands: Sequence[Array], out: Array, threads: int | None = None) -> int:
    """Return what ``execute`` takes beside these arrays: scratch of all threads, sums they share, and tables."""
    choice = choose(problem)
    if choice.isa is None:
        return by_numpy.memory_bytes(problem)
    lies = (*[array.strides for array in operands], out.strides)
    return _executable(choice.isa, problem, lies, count(threads)).memory_bytes


def _executable(isa: Isa, problem: Problem, lies: Lies, threads: int) -> Executable | Tiled:
    isas, executable = _generated()
    if problem.variant:
        return _of_tiles()(problem, lies, isas.machine(isa), threads)
    return executable(problem, lies, isas.machine(isa), threads)


def height(problem: Problem) -> int:
    """Return the height h of the sums that ``execute`` makes: the specified order's, or the NumPy engine's."""
    return height_of(problem) if choose(problem).engine == "generated" else by_numpy.height(problem)
