"""The generated engine: kernels with the specified order of sums, for this machine's widest instruction set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import ref

from convgrad.array_types import Array
from convgrad.engines.addresses import address_of
from convgrad.engines.engine import Strides
from convgrad.engines.llvm import added, isas, samples, tune
from convgrad.engines.llvm.execute import Executable, Planner, executable, predicted
from convgrad.engines.pools import helped
from convgrad.engines.settings import tuning
from convgrad.engines.tensors import PER_ROW, Strided
from convgrad.formats import F32, Format, of_dtype
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.passes import dense_strides
from convgrad.plan.recipe import Chosen
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.starting import deferred

if TYPE_CHECKING:
    from convgrad.engines.llvm.elementwise.run import ElementwiseCalls
    from convgrad.engines.llvm.winograd.run import Tiled

    AnyCall = Executable | Tiled


@deferred
def _elementwise() -> Callable[[Isa], ElementwiseCalls]:
    """Return the function that returns maps and sums for an instruction set, because few calls need its emitter."""
    from convgrad.engines.llvm.elementwise.run import calls_for  # noqa: PLC0415

    return calls_for


@deferred
def _tiled() -> Callable[[Problem, Strides, Machine, int], Tiled]:
    """Return the function that prepares Winograd's algorithm, because few calls need its emitter."""
    from convgrad.engines.llvm.winograd.run import tiled  # noqa: PLC0415

    return tiled


class LlvmEngine:
    """The engine that computes every problem for which it has a kernel."""

    def __init__(self) -> None:
        # ``isas.isa`` would load LLVM too, but it also takes the compiler's lock.
        # A fork takes the compiler's lock before that of imports, so the opposite order could deadlock.
        isas.supported()

    @property
    def detail(self) -> str:
        """The name of the instruction set that kernels use."""
        return str(isas.isa())

    def why_not(self, problem: Problem) -> str:
        """Return why this machine has no kernels. Problems without a kernel are refused earlier, by the registry."""
        return self.why_no_kernels()

    def why_no_kernels(self) -> str:
        """Return why this machine has no kernels, or the empty string if it has kernels."""
        return "" if isas.isa() else isas.why_no_isa()

    def call(self, problem: Problem, strides: Strides, threads: int) -> LlvmCall:
        """Return the call of a problem for arrays of these strides, with the instruction set that is now in force."""
        return LlvmCall(_isa(), problem, strides, threads, _planner())

    def measured_plan(self, problem: Problem, threads: int) -> Chosen:
        """Return the fastest measured plan for dense row-major arrays."""
        return _call_of(_isa(), problem, dense_strides(problem), threads, _planner()).plan

    def norms2(self, problem: Problem, operands: Sequence[Array], out: Array, threads: int) -> None:
        """Write the squared norm of each sample's gradient into ``out``, while the gradient is in a cache."""
        if len(out):
            samples.norms2(problem, operands, out, self.machine(), threads)

    def squares(self, rows: Array) -> Array:
        """Return the squared norm of each row of a dense f32 array."""
        return samples.squares_of(_isa(), rows)

    def scale(self, data: Array, factors: Array, out: Array, threads: int) -> None:
        """Compute out[n] = data[n] * factors[n] in f32 in one pass over memory."""
        fmt = of_dtype(data.dtype)
        assert fmt is not None, "operands are of a format"
        data, elements = data.astype(fmt.dtype, copy=False), out.size // max(1, len(out))
        tensors = (
            Strided(fmt.name, 0, elements * fmt.itemsize),
            Strided(PER_ROW, 0, factors.itemsize),
            Strided(F32.name, 0, elements * out.itemsize),
        )
        arrays, calls = (data, factors, out), self.elementwise()
        assert calls is not None, "the engine was asked, and has kernels"
        if out.size:
            call = calls.prepared((calls.map("product", tensors, (1, len(out), elements)),), threads)
            call([address_of(array) for array in arrays], arrays)

    def elementwise(self) -> ElementwiseCalls | None:
        """Return the maps and sums of ``spec/elementwise/`` for the instruction set in force; None without kernels."""
        isa = isas.isa()
        return None if isa is None else _elementwise()(isa)

    def add_up(self, terms: Sequence[Array], out: Array, fmt: Format, accumulate: bool) -> None:
        """Write the sum of dense f32 arrays, added from the first to the last, into ``out`` with the usual epilogue."""
        added.add_up(_isa(), terms, out, fmt.name, accumulate)

    def machine(self) -> Machine:
        """Return the description of this machine with the instruction set in force."""
        return isas.machine(_isa())

    def memory_bytes(self, problem: Problem, strides: Strides, threads: int) -> int:
        """Return the bytes that a call needs besides its arrays."""
        taken: int = _call_of(_isa(), problem, strides, threads, _planner()).memory_bytes
        return taken

    def height(self, problem: Problem) -> int:
        """Return the maximum number of roundings between a term and the result in the specified order."""
        return height_of(problem)


class LlvmCall:
    """A problem and the strides of its canonical arrays.

    The engine caches tables and kernels of the latest calls. After ``prepare``, this object keeps its tables and
    kernels alive even if the cache drops them.
    """

    __slots__ = ("_cached", "_held", "isa", "planner", "problem", "strides", "threads")

    def __init__(
        self, isa: Isa, problem: Problem, strides: Strides, threads: int, planner: Planner = predicted
    ) -> None:
        self.isa, self.problem, self.strides, self.threads, self.planner = isa, problem, strides, threads, planner
        self._cached: Callable[[], AnyCall | None] = _nothing
        self._held: AnyCall | None = None

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute the problem from the operands at these addresses, on one thread if more threads would not help."""
        call = self._cached() or self._remembered()
        if call.plan.threads > 1 and not helped(call.plan.threads, call.plan.time_ms):
            call = _call_of(self.isa, self.problem, self.strides, 1, self.planner)  # one thread computes the same bits
        call.at(operands, out, keep)

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute the problem from arrays that have the strides of the call."""
        self.at([address_of(array) for array in operands], address_of(out), (operands, out))

    def elsewhere(self, strides: Strides) -> LlvmCall:
        """Return the same call for arrays of other strides, with the same instruction set."""
        return LlvmCall(self.isa, self.problem, strides, self.threads, self.planner)

    def prepare(self) -> None:
        """Compile the kernels and fill the tables, and keep both as long as this object lives."""
        self._held = self._remembered()

    def _remembered(self) -> AnyCall:
        call = _call_of(self.isa, self.problem, self.strides, self.threads, self.planner)
        self._cached = ref(call)
        return call


def _nothing() -> None:
    return None


def _isa() -> Isa:
    isa = isas.isa()
    assert isa is not None, "the engine was asked, and has no kernels"
    return isa


def _planner() -> Planner:
    """Return the planner in force: by the cost model, or by measurement."""
    return tune.fastest if tuning() else predicted


def _call_of(isa: Isa, problem: Problem, strides: Strides, threads: int, planner: Planner) -> AnyCall:
    if problem.algorithm:
        return _tiled()(problem, strides, isas.machine(isa), threads)
    return executable(problem, strides, isas.machine(isa), threads, planner)


LLVM = LlvmEngine()
