"""Runs: the terms that a box of positions meets, tap by tap, as a list that its tiles go through again and again.

What a box meets is a box of taps: per axis the first, how many, and how far apart. So the list is made when it is
needed, and no table lists taps by positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.schedule import BLOCK, PART, RUN
from convgrad.plan.tree import END
from convgrad.spec.order import BLOCK as BLOCK_TERMS

STATE = (
    "run",
    "start",
    "block",
    "number",
    "data",
    "weights",
    "terms",
    "block_runs",
    "block_count",
    "all_terms",
    "last",
)


def runs(module: Module, spec: ForwardSpec) -> None:
    """Emit ``runs``: write RUNs and BLOCKs of a box of taps; ``counted`` is told blocks, terms, the last run's data.

    Terms that go on where the run before ends, in data and in weights, are that run's too, within a block.
    """
    axes = range(spec.axes)
    f = module.function(
        "runs",
        False,
        arguments="ptr",
        runs="ptr",
        blocks="ptr",
        counted="ptr",
        **{f"part{axis}": "ptr" for axis in axes},
    )
    a = arguments(f, spec)
    parts = [columns(f, f.parameters[f"part{axis}"], PART) for axis in axes]
    begin = {
        "run": f.at(f.runs, -RUN.bytes), "start": f.runs, "block": f.at(f.blocks, -BLOCK.bytes),
        "number": f.value(END),
        **dict.fromkeys(("data", "weights", "terms", "block_runs", "block_count", "all_terms", "last"), f.value(0)),
    }  # fmt: skip
    state = _taps(f, spec, a, parts, begin, (f.value(0), f.value(0)), a.tap_bytes)
    end_blocks(f, state["block"], state["block_count"])
    f.store(f.value(0), f.blocks, BLOCK.at("run"))
    for at, name in enumerate(("block_count", "all_terms", "last")):
        f.store(state[name], f.counted, 8 * at)
    f.done()


def end_blocks(f: Function, last: Value, count: Value) -> None:
    """End a list of blocks, and number them as the leaves of a tree."""
    number = BLOCK.at("number")
    f.store(f.value(END), last, BLOCK.bytes + number)
    tree.renumber(f, f.at(f.blocks, number), BLOCK.bytes, count)


def _taps(
    f: Function, spec: ForwardSpec, a: Named, parts: Sequence[Named], state: dict[str, Value],
    at: tuple[Value, Value], tap_bytes: Value,
) -> dict[str, Value]:  # fmt: skip
    """Loop over the taps of the first of some axes, and within over the others'; return the state after them."""
    if not parts:
        return _tap(f, spec, a, state, at, tap_bytes)
    part, *inner = parts
    tap, data = at
    with f.loop(part.taps, tap=tap + part.tap, met=data, **state) as each:
        here = {name: each.carried[name] for name in STATE}
        after = _taps(f, spec, a, inner, here, (each.tap, each.met), tap_bytes)
        each.next(tap=each.tap + part.tap_step, met=each.met + part.tap_data, **after)
    return {name: each.carried[name] for name in STATE}


def _tap(
    f: Function, spec: ForwardSpec, a: Named, state: dict[str, Value], at: tuple[Value, Value], tap_bytes: Value
) -> dict[str, Value]:
    """The terms of one tap, cut into blocks where they are many."""
    tap, met = at
    with f.loop(a.line_blocks, left=a.terms, met=met, packed=tap * tap_bytes, **state) as part:
        s = {name: part.carried[name] for name in STATE}
        count = f.min(part.left, BLOCK_TERMS)
        number = f.op("i64", f"udiv {tap * a.number_step + part.index}, {a.number_share.name}")
        new_block = f.compare("ne", number, s["number"])
        follows = f.compare("eq", s["data"], part.met) & f.compare("eq", s["weights"], part.packed)
        joins = follows & f.compare("eq", number, s["number"])
        if spec.in_pairs:  # an odd last term is no half of a pair with the next tap's first
            joins = joins & f.compare("eq", s["terms"] & 1, 0)
        run = f.select(joins, s["run"], f.at(s["run"], RUN.bytes))
        terms = f.select(joins, s["terms"] + count, count)
        data_bytes, weight_bytes = count * a.term_step, count * a.term_bytes
        first = {
            "data": f.select(joins, f.load("i64", run, 0), part.met),
            "weights": f.select(joins, f.load("i64", run, 8), part.packed),
            "count": terms,
        }
        for name, value in first.items():
            f.store(value, run, RUN.at(name))
        block = f.select(new_block, f.at(s["block"], BLOCK.bytes), s["block"])
        more = f.select(joins, f.value(0), f.value(1))
        inside = f.select(new_block, f.value(1), s["block_runs"] + more)
        f.store(number, block, BLOCK.at("number"))
        f.store(inside, block, BLOCK.at("runs"))
        start = f.select(new_block, run, s["start"])
        f.store(f.distance(start, f.runs), block, BLOCK.at("run"))
        part.next(
            left=part.left - count, met=part.met + data_bytes, packed=part.packed + weight_bytes, run=run, block=block,
            start=start, number=number, data=part.met + data_bytes, weights=part.packed + weight_bytes, terms=terms,
            block_runs=inside,
            block_count=f.select(new_block, s["block_count"] + 1, s["block_count"]), all_terms=s["all_terms"] + count,
            last=part.met,
        )  # fmt: skip
    return {name: part.carried[name] for name in STATE}
