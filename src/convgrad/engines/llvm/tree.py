"""The 16-ary reduction tree in IR: chains are pushed in the order of their numbers, and complete nodes are combined.

The number of a chain has a hexadecimal digit for each level of the tree. One node per level is in memory. Chains are
pushed to the node of level 0, and a complete node of level n is combined into that of level n + 1. The child with digit
0 begins its node, and the other children are added from left to right. A node is complete if the next chain does not
belong to its subtree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as folded

from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import DIGIT_BITS
from convgrad.spec.order import FAN_IN

Pushed = Callable[[Value, Value], Value]  # of a child and the address of its node


def begins(f: Function, number: Value) -> Value:
    """Return whether the child with this number is the first of its node."""
    return f.compare("eq", number & (FAN_IN - 1), 0)


def push(f: Function, values: Sequence[Value], sums: Sequence[Value], first: Value) -> None:
    """Add the values of a child to the sums of its node, as node + child; the first child is stored instead."""

    def push_all(pushed: Pushed) -> None:
        for value, place in zip(values, sums, strict=True):
            f.store(pushed(value, place), place)

    _by_first(f, first, push_all)


def _by_first(f: Function, first: Value, push_all: Callable[[Pushed], None]) -> None:
    """Emit code for a node's first child, and for its others; what it gets returns the node with a child added."""
    with f.when(first):
        push_all(lambda child, node: child)
    with f.otherwise():
        push_all(lambda child, node: f.add(f.load(child.type, node), child))


def combine(module: Module, isa: Isa) -> None:
    """Emit ``combine``, which pushes the sums of node ``child``, ``size`` bytes in memory, to node ``parent``."""
    f = module.function("combine", child="ptr", parent="ptr", size="i64", first="i1")
    kind, step = f"<{isa.lanes} x float>", isa.lanes * F32_BYTES

    def push_all(pushed: Pushed) -> None:
        with f.loop(f.size >> (step.bit_length() - 1), child=f.child, parent=f.parent) as iteration:
            f.store(pushed(f.load(kind, iteration.child), iteration.parent), iteration.parent)
            iteration.next(child=f.at(iteration.child, step), parent=f.at(iteration.parent, step))

    _by_first(f, f.first, push_all)
    f.done()


def combine_up(module: Module, isa: Isa) -> None:
    """Emit ``combine_up`` and ``combine``, the functions that ``combine_complete`` calls."""
    combine(module, isa)
    f = module.function("combine_up", sums="ptr", step="i64", size="i64", levels="i64", number="i64", following="i64")

    def combined(child: Value, number: Value, parent: Value) -> None:
        f.call("combine", child, parent, f.size, begins(f, number))

    complete_nodes(f, f.levels, (f.number, f.following), f.sums, f.step, combined)
    f.done()


def combine_complete(
    f: Function, sums: Value, step: int, size: Value | int, levels: Value, numbers: tuple[Value, Value]
) -> None:
    """Combine the nodes that are complete after the first of two consecutive chains, whose numbers are ``numbers``.

    The nodes of two levels are ``step`` bytes apart, and each has ``size`` bytes of sums.
    """
    with f.when(completes(f, *numbers)):
        f.call("combine_up", sums, step, size, levels, *numbers)


def completes(f: Function, number: Value, following: Value) -> Value:
    """Return whether a node is complete after the first of two consecutive chains."""
    return f.compare("ne", f.op("i64", f"xor {number}, {following.name}") >> DIGIT_BITS, 0)


def complete_nodes(
    f: Function,
    levels: Value,
    numbers: tuple[Value, Value],
    sums: Value,
    step: Value | int,
    combined: Callable[[Value, Value, Value], None],
) -> None:
    """Visit the nodes that are complete after the first of two consecutive chains, from the leaves to the root.

    ``combined`` is called with the node's sums, the node's number, and the sums of its parent.
    """
    number, differ = numbers[0], f.op("i64", f"xor {numbers[0]}, {numbers[1].name}")
    begin = {"child": sums, "number": number >> DIGIT_BITS, "differ": differ >> DIGIT_BITS}
    with f.loop(levels - 1, **begin) as level:
        parent = f.at(level.child, step)
        with f.when(f.compare("ne", level.differ, 0)):
            combined(level.child, level.number, parent)
        level.next(child=parent, number=level.number >> DIGIT_BITS, differ=level.differ >> DIGIT_BITS)


def renumber(f: Function, first: Value, step: int, count: Value) -> None:
    """Number a list of leaves, of which some are absent, so that the existing children of each node count from 0.

    The number after the last leaf keeps its value. Digits only become smaller, so each leaf stays in its node.
    """
    begin = {"place": first, "old": f.load("i64", first), "new": f.value(0)}
    with f.loop(count, **begin) as leaf:
        f.store(leaf.new, leaf.place)
        place = f.at(leaf.place, step)
        old = f.load("i64", place)
        differ = f.op("i64", f"xor {leaf.old}, {old.name}")
        zeros = f.intrinsic("i64", "llvm.ctlz.i64", differ, "i1 0")
        digit = f.op("i64", f"and {f.op('i64', f'sub i64 63, {zeros.name}')}, {-DIGIT_BITS}")
        following = f.op("i64", f"shl {f.op('i64', f'lshr {leaf.new}, {digit.name}') + 1}, {digit.name}")
        leaf.next(place=place, old=old, new=following)


def reduce(module: Module, isa: Isa) -> None:
    """Emit ``reduce``, which adds leaves in memory level by level; the sum replaces the first leaf.

    The leaves are ``step`` bytes apart, and each has ``size`` bytes of sums.
    """
    f = module.function("reduce", leaves="ptr", step="i64", count="i64", size="i64", levels="i64")
    kind, vector = f"<{isa.lanes} x float>", isa.lanes * F32_BYTES
    with f.loop(f.levels, left=f.count, step=f.step) as level:
        nodes = (level.left + (FAN_IN - 1)) >> DIGIT_BITS
        with f.loop(nodes, first=f.leaves, left=level.left) as node:
            others = f.min(node.left, FAN_IN) - 1
            with f.loop(f.size >> (vector.bit_length() - 1), first=node.first) as iteration:
                with f.loop(
                    others, child=f.at(iteration.first, level.step), sum=f.load(kind, iteration.first)
                ) as other:
                    total = f.add(other.sum, f.load(kind, other.child))
                    other.next(child=f.at(other.child, level.step), sum=total)
                f.store(other.sum, iteration.first)
                iteration.next(first=f.at(iteration.first, vector))
            node.next(first=f.at(node.first, level.step * FAN_IN), left=node.left - FAN_IN)
        level.next(left=nodes, step=level.step * FAN_IN)
    f.done()


def reduced(f: Function, leaves: Sequence[Value]) -> Value:
    """Return the sum of leaves that are in registers, in the order of the reduction tree."""
    while len(leaves) > 1:
        leaves = [folded(f.add, leaves[first : first + FAN_IN]) for first in range(0, len(leaves), FAN_IN)]
    return leaves[0]


def pushed(f: Function, node: Value, other: Value, level: Value, above: Value) -> tuple[Value, Value]:
    """Return the sums ``level`` and ``above`` of two levels after a complete node is pushed to ``level``.

    ``other`` is whether the node's parent differs from the parent of the previous node.
    """
    return f.select(other, node, f.add(level, node)), f.select(other, f.add(above, level), above)
