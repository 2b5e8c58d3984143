"""The multiply-adds of an iteration of a micro-tile's loop over k, and the loads of A for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import MultiplyAdd, high, low
from convgrad.engines.llvm.microkernel import multiply_add
from convgrad.formats import F32
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.pairs import PAIR_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES

Read = Callable[[Function, Value, int], Value]  # (f, address, lanes): load an element of A into all lanes


@dataclass(frozen=True)
class MultiplyAddStep:
    """A multiply-add to all sums of a micro-tile. An iteration of the loop over k has one to four steps."""

    read: Read  # loads an element of A
    a: Value | int = 0  # the offset of that element from the first k of the iteration, in bytes
    b: int = 0  # the number of rows of the panel of B from the first k of the iteration
    add: MultiplyAdd = multiply_add
    chain: int = 0  # of the portion


def k_bytes(spec: GemmSpec, a: Named) -> Value | int:
    """Return the distance in bytes between two k of A, packed or in place."""
    if not spec.a.in_place:
        return F32_BYTES // spec.k_per_add
    return BYTES[spec.operand] if spec.a.contiguous == CHANNELS else a.a_k


def steps_of(spec: GemmSpec, a: Named) -> list[MultiplyAddStep]:
    """Return the steps of an iteration of a kernel without pair instructions, in the order of the sum.

    If terms are bf16 pairs, the sum adds the second k of a pair first. Packing swaps the two k of a pair. Operands in
    place are not swapped, so the steps read them in this order. With two chains, each step is for one of them.
    """
    element_of_a, halves = element(F32.name if not spec.a.in_place else spec.operand), spec.reads_pairs
    halves = halves and spec.a.contiguous == CHANNELS
    if spec.chains == 2:
        lower, upper = (_low_half, _high_half) if halves else (element_of_a, element_of_a)
        return [MultiplyAddStep(lower), MultiplyAddStep(upper, 0 if halves else k_bytes(spec, a), 1, chain=1)]
    if not (spec.a.in_place and spec.pairs):
        return [MultiplyAddStep(element_of_a)]
    first, second = (1, 0) if spec.b.in_place else (0, 1)
    if halves:
        return [MultiplyAddStep(_high_half, b=first), MultiplyAddStep(_low_half, b=second)]
    return [MultiplyAddStep(element_of_a, k_bytes(spec, a), first), MultiplyAddStep(element_of_a, b=second)]


def element(fmt: str) -> Read:
    """Return a function that loads an element of A in a format, as f32."""
    return lambda f, place, lanes: f.splat(read(f, fmt, place), lanes)


def of_both_chains(*adds: MultiplyAdd) -> list[MultiplyAddStep]:
    """Return the steps that add a pair of each chain, by every multiply-add in ``adds``."""
    return [MultiplyAddStep(pair_of_a, chain * PAIR_BYTES, 2 * chain, add, chain) for chain in range(2) for add in adds]


def pair_of_a(f: Function, place: Value, lanes: int) -> Value:
    """Load a bf16 pair of A into all lanes."""
    return f.splat(f.load("i32", place), lanes)


def first_of_pair(f: Function, place: Value, lanes: int) -> Value:
    """Load an odd last k of A as a bf16 pair whose high half is 0; memory after the k is not read."""
    return f.splat(f.op("i32", f"zext {f.load('i16', place)} to i32"), lanes)


def _high_half(f: Function, place: Value, lanes: int) -> Value:
    """Load the second element of a bf16 pair of A as f32."""
    return high(f, pair_of_a(f, place, lanes))


def _low_half(f: Function, place: Value, lanes: int) -> Value:
    """Load the first element of a bf16 pair of A as f32."""
    return low(f, pair_of_a(f, place, lanes))
