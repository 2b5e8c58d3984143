"""The tables that a GPU's kernels read: numbers of a product, leaves of the tree, and terms in equal steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.plan.cuda.nest import AXES, Product
from convgrad.plan.records import Record
from convgrad.plan.tables import distinct, placed
from convgrad.spec.order import FAN_IN, SPLIT_TERMS

DEPTH = 8  # terms of a step: an even number that divides SPLIT_TERMS, so that steps begin with even terms
PORTION = SPLIT_TERMS // DEPTH  # steps
ABSENT = -(1 << 30)  # a position that does not exist, also if a smaller position of a row is added to it
Int32 = NDArray[np.int32]

_LOOP = Record("extent", "a", "c", "step")
LOOPS = ("outer", *(f"axis{axis}" for axis in range(AXES)), "inner")
# The numbers of a product. Those that end in _at are offsets of tables, in bytes from the numbers.
NUMBERS = Record(
    "rows", "columns", "column_tiles", "column_b", "column_c", "groups", "group_a", "group_b", "group_c", "first",
    "bias_step", "term_step", *(f"extent{axis}" for axis in range(AXES)), "leaves_at", "ends_at", "terms_at",
)  # fmt: skip
for _name in LOOPS:
    NUMBERS = NUMBERS + _LOOP.within(_name)
# The numbers of a level of the reduction tree: of outputs, of children per unit, and of nodes per unit.
LEVEL = Record("elements", "children", "nodes")
# The numbers of the kernel that packs B: terms, and the place of their offsets.
PACK = Record("count", "offsets_at")
LEAF_WORDS = 4  # of a leaf: first step, step after the last, offsets of its operands
TERM_WORDS = 8  # of a term: offsets in A and B, positions; absent terms have the offsets of the first term


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of a product's reduction tree. A leaf is a chain, or a node of 16 chains."""

    rows: Int32  # a row of LEAF_WORDS per leaf
    ends: Int32  # for each step, 0, or 1 if a portion or chain ends with it, or 2 if both end and ``portions``
    terms: Int32  # a row of TERM_WORDS per term, with terms that do not exist at the ends of chains
    units: int
    per_unit: int  # leaves per unit
    padded: bool  # whether a chain ends with absent terms, or there are no terms
    portions: bool  # whether some chain has several portions

    @property
    def real_terms(self) -> Int32:
        """The terms without the step after the last."""
        return self.terms[:-DEPTH]


def chains_of(product: Product) -> Leaves:
    """Return the leaves of a product that are single chains.

    After the last step, there is a step without terms: kernels load the next step while they compute the present one.
    """
    terms = product.terms
    numbers, which = distinct(terms.unit * product.chains + terms.chain)
    counts = np.bincount(which, minlength=len(numbers)).astype(np.int64)
    steps = -(-counts // DEPTH)
    first = np.cumsum(steps) - steps
    order = np.argsort(which, kind="stable")
    starts = np.cumsum(counts) - counts
    place = np.empty(len(which), np.int64)
    place[order] = np.repeat(first * DEPTH - starts, counts) + np.arange(len(which))
    total = int(steps.sum()) + 1
    table = np.zeros((total * DEPTH, TERM_WORDS), np.int32)
    table[:, 2 : 2 + AXES] = ABSENT
    if len(terms):
        table[:, 0], table[:, 1] = terms.a[:1], terms.b[:1]
    table[place, 0], table[place, 1] = terms.a, terms.b
    table[place, 2 : 2 + AXES] = terms.positions.T
    ends, portions = np.zeros(total, np.int32), product.split and int(counts.max(initial=0)) > SPLIT_TERMS
    if portions:
        ends[:-1] = (np.arange(total - 1) - np.repeat(first, steps)) % PORTION == PORTION - 1
    ends[first + steps - 1] = 1 + portions
    chains = np.arange(product.units * product.chains)
    bounds = np.append(first, total - 1)
    rows = np.zeros((product.repeats, len(chains), LEAF_WORDS), np.int32)
    rows[:, :, 0] = bounds[np.searchsorted(numbers, chains)]
    rows[:, :, 1] = bounds[np.searchsorted(numbers, chains, side="right")]
    repeats = np.arange(product.repeats)[:, None]
    rows[:, :, 2], rows[:, :, 3] = (repeats * step for step in product.repeat_steps)
    padded = not len(terms) or bool((counts % DEPTH).any())
    units = product.units * product.repeats
    return Leaves(rows.reshape(-1, LEAF_WORDS), ends, table, units, product.chains, padded, portions)


def nodes_of(chains: Leaves) -> Leaves:
    """Return the same leaves in nodes of 16 chains. The terms and steps are the same."""
    rows = chains.rows.reshape(chains.units, chains.per_unit, LEAF_WORDS)
    nodes = rows[:, ::FAN_IN].copy()
    nodes[:, :, 1] = np.append(rows[:, FAN_IN - 1 :: FAN_IN, 1], rows[:, -1:, 1], axis=1)[:, : nodes.shape[1]]
    return replace(chains, rows=nodes.reshape(-1, LEAF_WORDS), per_unit=nodes.shape[1])


def table_of(product: Product, leaves: Leaves, column_tiles: int, term_step: int) -> bytes:
    """Return the numbers of a product and its tables as bytes, which are copied to the GPU."""
    numbers = _numbers(product) | {"column_tiles": column_tiles, "term_step": term_step}
    return _in_bytes(NUMBERS, numbers, leaves=leaves.rows, ends=leaves.ends, terms=leaves.terms)


def pack_table(product: Product) -> bytes:
    """Return the numbers of the kernel that packs B, and the offset of each term in B."""
    numbers = _numbers(product) | {"count": len(product.terms)}
    return _in_bytes(NUMBERS + PACK, numbers, offsets=product.terms.b.astype(np.int32))


def level_table(product: Product, children: int) -> bytes:
    """Return the numbers of a level of the reduction tree that adds this number of children per unit."""
    level = {"elements": product.outputs, "children": children, "nodes": -(-children // FAN_IN)}
    return _in_bytes(NUMBERS + LEVEL, _numbers(product) | level)


def _in_bytes(record: Record, numbers: Mapping[str, int], **parts: Int32) -> bytes:
    """Return the numbers of a record, followed by tables. The offset of a table is the number ``NAME_at``."""
    places, size = placed({"numbers": record.bytes} | {name: part.nbytes for name, part in parts.items()})
    offsets = {f"{name}_at": places[name] for name in parts}
    table = bytearray(size)
    arrays: dict[str, Array] = {"numbers": record.rows([{**numbers, **offsets}]), **parts}
    for name, array in arrays.items():
        table[places[name] : places[name] + array.nbytes] = array.tobytes()
    return bytes(table)


def _numbers(product: Product) -> dict[str, int]:
    """Return NUMBERS of a product, by name. Those that only some kernels read are 0."""
    group_a, group_b, group_c = product.group_steps
    loops: dict[str, int] = {}
    for name, loop in zip(LOOPS, product.loops, strict=True):
        loops |= _LOOP.values(name, extent=loop.extent, a=loop.a, c=loop.c, step=loop.step)
    return {
        "rows": product.rows,
        "columns": product.columns.extent,
        "column_tiles": 0,
        "column_b": product.columns.a,
        "column_c": product.columns.c,
        "groups": product.groups,
        "group_a": group_a,
        "group_b": group_b,
        "group_c": group_c,
        "first": product.first,
        "bias_step": product.bias_step,
        "term_step": 0,
        "leaves_at": 0,
        "ends_at": 0,
        "terms_at": 0,
        **loops,
        **{f"extent{axis}": extent for axis, extent in enumerate(product.extents)},
    }
