"""Segments: stretches of K that are contiguous in A and in B, as a list that all micro-tiles of a region go through.

The taps that a region meets are evenly spaced along each axis: the first, how many, and how far apart. So the list is
made when its region is computed, and no table has an entry for each position and tap.
"""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.schedule import CHAIN, PART, SEGMENT
from convgrad.plan.tree import END
from convgrad.spec.order import BLOCK as BLOCK_TERMS

State = dict[str, Value]
# The segment that is open, and how many k it has; its chain, number, first segment and count of segments; the offsets
# where the segment ends; and what the function counts.
STATE = (
    "segment", "k", "chain", "number", "first", "segments", "data", "weights", "chain_count", "all_k", "last",
)  # fmt: skip


def segments(module: Module, spec: ForwardSpec) -> None:
    """Emit ``segments``: list those of a region and its chains; ``counted`` gets chains, k, and the last offset in A.

    A tap that begins where a segment ends, in A and in B, continues this segment, within a chain.
    """
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "segments", False, arguments="ptr", segments="ptr", chains="ptr", counted="ptr", **dict.fromkeys(names, "ptr")
    )
    a, parts = arguments(f, spec), [columns(f, f.parameters[name], PART) for name in names]
    begin = dict.fromkeys(STATE, f.value(0)) | {
        "segment": f.at(f.segments, -SEGMENT.bytes), "first": f.segments, "chain": f.at(f.chains, -CHAIN.bytes),
        "number": f.value(END),
    }  # fmt: skip
    state = _taps(f, spec, a, parts, begin, (f.value(0), f.value(0)), a.b_tap)
    end_chains(f, state["chain"], state["chain_count"])
    f.store(f.value(0), f.chains, CHAIN.at("segment"))
    for at, name in enumerate(("chain_count", "all_k", "last")):
        f.store(state[name], f.counted, 8 * at)
    f.done()


def end_chains(f: Function, last: Value, count: Value) -> None:
    """End a list of chains, and number them as the leaves of a tree."""
    number = CHAIN.at("number")
    f.store(f.value(END), last, CHAIN.bytes + number)
    tree.renumber(f, f.at(f.chains, number), CHAIN.bytes, count)


def _taps(
    f: Function, spec: ForwardSpec, a: Named, parts: Sequence[Named], state: State, at: tuple[Value, Value],
    b_tap: Value,
) -> State:  # fmt: skip
    """Loop over the taps of the first of some axes and, inside, over those of the others; return the state after."""
    if not parts:
        return _tap(f, spec, a, state, at, b_tap)
    part, *inner = parts
    tap, data = at
    with f.loop(part.taps, tap=tap + part.tap, met=data, **state) as each:
        here = {name: each.carried[name] for name in STATE}
        after = _taps(f, spec, a, inner, here, (each.tap, each.met), b_tap)
        each.next(tap=each.tap + part.tap_step, met=each.met + part.tap_data, **after)
    return {name: each.carried[name] for name in STATE}


def _tap(f: Function, spec: ForwardSpec, a: Named, state: State, at: tuple[Value, Value], b_tap: Value) -> State:
    """List the k of one tap, cut into several chains where there are many."""
    tap, met = at
    with f.loop(a.tap_chains, left=a.k, met=met, packed=tap * b_tap, **state) as part:
        s = {name: part.carried[name] for name in STATE}
        count = f.min(part.left, BLOCK_TERMS)
        number = f.op("i64", f"udiv {tap * a.number_step + part.index}, {a.number_share.name}")
        new_chain = f.compare("ne", number, s["number"])
        continues = (
            f.compare("eq", s["data"], part.met) & f.compare("eq", s["weights"], part.packed)
            & f.compare("eq", number, s["number"])
        )  # fmt: skip
        if spec.reads_pairs:  # an odd last k does not form a pair with the first k of the next tap
            continues = continues & f.compare("eq", s["k"] & 1, 0)
        segment = f.select(continues, s["segment"], f.at(s["segment"], SEGMENT.bytes))
        row = {
            "data": f.select(continues, f.load("i64", segment, 0), part.met),
            "weights": f.select(continues, f.load("i64", segment, 8), part.packed),
            "count": f.select(continues, s["k"] + count, count),
        }
        for name, value in row.items():
            f.store(value, segment, SEGMENT.at(name))
        chain = f.select(new_chain, f.at(s["chain"], CHAIN.bytes), s["chain"])
        inside = f.select(new_chain, f.value(1), s["segments"] + f.select(continues, f.value(0), f.value(1)))
        first = f.select(new_chain, segment, s["first"])
        f.store(number, chain, CHAIN.at("number"))
        f.store(inside, chain, CHAIN.at("segments"))
        f.store(f.distance(first, f.segments), chain, CHAIN.at("segment"))
        data, weights = part.met + count * a.a_k, part.packed + count * a.b_k
        part.next(
            left=part.left - count, met=data, packed=weights, segment=segment, k=row["count"], chain=chain,
            number=number, first=first, segments=inside, data=data, weights=weights,
            chain_count=f.select(new_chain, s["chain_count"] + 1, s["chain_count"]), all_k=s["all_k"] + count,
            last=part.met,
        )  # fmt: skip
    return {name: part.carried[name] for name in STATE}
