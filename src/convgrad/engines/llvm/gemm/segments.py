"""Lists of segments: ranges of K that are contiguous in A and in B. All micro-tiles of a region use the same list.

The taps of a region are evenly spaced along each axis, so four numbers per axis describe them: ``taps``, ``tap``,
``tap_step`` and ``tap_data`` of PART. The list is written when its region is computed, so no table needs an entry for
each position and tap.
"""

from __future__ import annotations

from functools import partial

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, fill
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm.arguments import arguments, each_tap
from convgrad.plan.gemm.schedule import CHAIN, PART, SEGMENT
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.records import Record
from convgrad.plan.tree import END

State = dict[str, Value]
COUNTED = Record("chains", "k", "last_a")  # the number of chains and of k in a region's lists, and the last offset in A
# The state of the lists: the present segment and its number of k; the present chain, its number and its segments.
# The next values are the offsets at which the segment ends in A and B. The last three are the columns of COUNTED.
STATE = (
    "segment",
    "k",
    "chain",
    "number",
    "first",
    "segments",
    "a_end",
    "b_end",
    "chain_count",
    "all_k",
    "last_a",
)


def segments(module: Module, spec: GemmSpec) -> None:
    """Emit ``segments``, which lists the segments and the chains of a region, and writes a row of COUNTED.

    A tap of the same chain extends a segment if the tap begins where the segment ends, both in A and in B.
    """
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "segments", False, arguments="ptr", segments="ptr", chains="ptr", counted="ptr", **dict.fromkeys(names, "ptr")
    )
    a, parts = arguments(f, spec), [columns(f, f.parameters[name], PART) for name in names]
    begin = dict.fromkeys(STATE, f.value(0)) | {
        "segment": f.at(f.segments, -SEGMENT.bytes),
        "first": f.segments,
        "chain": f.at(f.chains, -CHAIN.bytes),
        "number": f.value(END),
    }
    state = each_tap(f, parts, begin, partial(_tap, f, spec, a.but(b_tap=a.b_tap)))
    end_lists(f, state["chain"], chains=state["chain_count"], k=state["all_k"], last_a=state["last_a"])


def end_lists(f: Function, last_chain: Value, **counted: Value) -> None:
    """End the list of chains, number its chains as leaves of the tree, store the counts, and end the function."""
    number = CHAIN.at("number")
    f.store(f.value(END), last_chain, CHAIN.bytes + number)
    tree.renumber(f, f.at(f.chains, number), CHAIN.bytes, counted["chains"])
    f.store(f.value(0), f.chains, CHAIN.at("segment"))
    fill(f, f.counted, COUNTED, **counted)
    f.done()


def _tap(f: Function, spec: GemmSpec, a: Named, tap: Value, data: Value, state: State) -> State:
    """Add the k of one tap to the lists, and return the new state.

    If the tap has more k than a chain may have, they are divided into several chains. Zeros that fill a last pair or,
    for tiles, a last portion count as k, so that the segment of the next tap may follow.
    """
    with f.loop(a.tap_chains, left=a.k, data=data, weights=tap * a.b_tap, **state) as tap_chain:
        s = {name: tap_chain.carried[name] for name in STATE}
        chain_k = f.min(tap_chain.left, spec.leaf_terms)
        count = chain_k
        if spec.fills_pairs:
            count = (chain_k + (spec.packed_together - 1)) & -spec.packed_together
        number = f.op("i64", f"udiv {tap * a.number_step + tap_chain.index}, {a.number_share.name}")
        new_chain = f.compare("ne", number, s["number"])
        continues = (
            f.compare("eq", s["a_end"], tap_chain.data)
            & f.compare("eq", s["b_end"], tap_chain.weights)
            & f.compare("eq", number, s["number"])
        )
        if spec.reads_pairs:  # an odd last k does not form a pair with the first k of the next tap
            continues = continues & f.compare("eq", s["k"] & 1, 0)
        segment = f.select(continues, s["segment"], f.at(s["segment"], SEGMENT.bytes))
        row = {
            "data": f.select(continues, f.load("i64", segment, SEGMENT.at("data")), tap_chain.data),
            "weights": f.select(continues, f.load("i64", segment, SEGMENT.at("weights")), tap_chain.weights),
            "count": f.select(continues, s["k"] + count, count),
        }
        fill(f, segment, SEGMENT, **row)
        chain = f.select(new_chain, f.at(s["chain"], CHAIN.bytes), s["chain"])
        inside = f.select(new_chain, f.value(1), s["segments"] + f.select(continues, f.value(0), f.value(1)))
        first = f.select(new_chain, segment, s["first"])
        fill(f, chain, CHAIN, number=number, segments=inside, segment=f.distance(first, f.segments))
        a_end, b_end = tap_chain.data + count * a.a_k, tap_chain.weights + count * a.b_k
        tap_chain.next(
            left=tap_chain.left - chain_k,
            data=a_end,
            weights=b_end,
            segment=segment,
            k=row["count"],
            chain=chain,
            number=number,
            first=first,
            segments=inside,
            a_end=a_end,
            b_end=b_end,
            chain_count=f.select(new_chain, s["chain_count"] + 1, s["chain_count"]),
            all_k=s["all_k"] + count,
            last_a=tap_chain.data,
        )
    return {name: tap_chain.carried[name] for name in STATE}
