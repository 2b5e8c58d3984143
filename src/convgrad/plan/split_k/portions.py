"""Weight gradients by portions, for tiles of AMX or vectors: the candidates, their cost, and the tables of a plan.

A micro-tile has one tap. It multiplies portions of 32 positions, which may be in several rows and images. Tables have
the offset of each position of a leaf in src and dst. A tap adds an offset in src. Positions at which it reads padding
are packed as zeros, which add nothing if dst is finite. If it is not, only the terms that exist are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import prod

import numpy as np

from convgrad.formats import BF16, FORMATS
from convgrad.plan import tree
from convgrad.plan.cost import Costs, Division, on_threads_ns
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.pairs import add_condition, chain_adds, k_per_add_choices
from convgrad.plan.recipe import CHANNELS, SPATIAL, STRIDED, Operands
from convgrad.plan.records import Record
from convgrad.plan.split_k import constants
from convgrad.plan.split_k.cost import stored_ns
from convgrad.plan.split_k.cuts import cuts, panels_of
from convgrad.plan.split_k.kernels import EITHER_WAY, Proposed, outer_products
from convgrad.plan.split_k.nest import WeightsNest, per_group
from convgrad.plan.split_k.operands import OperandStrides, contiguous_axis, operands_of
from convgrad.plan.split_k.recipe import PORTIONS, MicroTileShape, SplitKOperand, SplitKPlan, SplitKSpec
from convgrad.plan.split_k.schedule import (
    OPERANDS,
    cache_blocks_of,
    chains_table,
    operand_numbers,
    scratch_of,
    tasks,
)
from convgrad.plan.split_k.taps import contiguous
from convgrad.plan.tables import Ints, Schedule, Table, evenly, numbered, offsets, placed, wrapped
from convgrad.plan.tiling import SIDE, amx_step_cycles, balanced, holds_node, portion_step_cycles, step_cycles
from convgrad.spec.order import SPLIT_TERMS, order_of, over_positions
from convgrad.spec.problem import Problem

ADDRESS_BYTES = 8
MAX_MASKED_STRIDE = 2  # largest stride of positions, in elements, that packing loads under masks
# A row of CHAIN with other names: the number of the chain's first portion in the leaf, and the number of its terms.
PORTIONS_CHAIN = tree.CHAIN + Record("image", "portion", "terms", "portions")
SEGMENT_BITS = Record("offset", "bits")  # neighbours in a portion: the offset of its position 0, and a bit of each


def unsupported(problem: Problem, nest: WeightsNest, isa: Isa) -> str:
    """Return why kernels of portions do not apply, or the empty string."""
    if order_of(problem).chains == 1:
        return "sums have one chain"
    for tensor in ("src", "dst"):
        axis, stride = _axis_read(problem, nest, tensor)
        if axis != CHANNELS and isa.lanes < SIDE:
            return f"vectors are too short to load positions of {tensor} under masks"
        if axis == STRIDED:
            return f"neither channels nor positions of {tensor} are contiguous"
        if stride > MAX_MASKED_STRIDE:
            return f"fewer than every second position of {tensor} is read"
    many = nest.conv.positions * nest.images_a_chain * nest.conv.taps > constants.MAX_EXISTING
    return "the tables of taps and positions would be too large" if many else ""


def not_dense(problem: Problem, nest: WeightsNest, isa: Isa) -> str:
    """Return why the dense kernel does not apply: it is slow for sums of two chains."""
    slow = order_of(problem).chains == 2 and not unsupported(problem, nest, isa)
    return "sums have two chains, which are faster by portions" if slow else ""


def _axis_read(problem: Problem, nest: WeightsNest, tensor: str) -> tuple[str, int]:
    """Return the contiguous axis of a tensor and, if this is SPATIAL, the elements from a position read to the next."""
    axis, stride = contiguous_axis(problem, nest, tensor)
    return axis, stride * (nest.conv.axes[-1].stride if tensor == "src" and axis == SPATIAL else 1)


def kernels(problem: Problem, nest: WeightsNest, isa: Isa) -> Proposed:
    """Yield the kernels of tiles or, without AMX, of vectors. A is src or dst."""
    names, channels = (problem.operand_format.name, problem.output_format.name), per_group(nest)
    axis = {tensor: _axis_read(problem, nest, tensor) for tensor in channels}
    for a, b in EITHER_WAY:
        if isa.tiles:
            ways = [(MicroTileShape(balanced(channels[a], 2 * SIDE), 1 if channels[b] <= SIDE else 2), 2)]
        else:
            ways = [
                (shape, k_per_add)
                for k_per_add in k_per_add_choices(problem, isa)
                for rows, vectors in isa.micro_tiles_of(k_per_add, 2)
                if vectors <= 2  # the first cache has no room for a chain of wider panels
                for shape in outer_products(rows, vectors, channels[a])
            ]
        for shape, k_per_add in ways:
            x = SplitKOperand(*axis[a], width=shape.mr, moves=a == "src")
            y = SplitKOperand(*axis[b], width=shape.nr * isa.lanes, moves=b == "src")
            spec = SplitKSpec(isa, *names, PORTIONS, shape, x, y, k_per_add=k_per_add, chains=2)
            yield replace(spec, compact=k_per_add == 2), (a, b)


def costs(problem: Problem, nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands) -> Costs:
    """Return the predicted times of a kernel on one thread. Src is packed once per tap."""
    conv, micro_tile = nest.conv, spec.micro_tile
    groups, a, b, taps, leaves = panels_of(nest, spec, operands)
    portions = leaves * int(_portions(_terms(nest)).sum())
    block = SPLIT_TERMS * amx_step_cycles(micro_tile.mr, micro_tile.nr, 1)
    if not spec.amx_tiles:
        adds = chain_adds(SPLIT_TERMS, spec.k_per_add, machine)
        if holds_node(machine.isa, micro_tile.mr, micro_tile.nr):
            block = adds * portion_step_cycles(micro_tile.mr, micro_tile.nr)
        else:
            end = constants.PORTION_CYCLES * micro_tile.mr * micro_tile.nr
            block = adds * step_cycles(micro_tile.mr, micro_tile.nr) + end
    push = constants.PORTIONS_PUSH_CYCLES * micro_tile.mr * micro_tile.nr
    cycles = groups * a * b * taps * (portions * block + leaves * nest.chains * push)
    read_ns = machine.traffic_ns(problem.operand_format.itemsize)
    elements = {"src": conv.src_channels * conv.taps, "dst": conv.dst_channels}
    pack_a, pack_b = (
        (pack_ns + read_ns) * elements[tensor] * portions * SPLIT_TERMS
        for pack_ns, tensor in zip(_pack_ns(machine, spec), operands, strict=True)
    )
    store = stored_ns(problem, nest, machine, spec, operands)
    return Costs(spec, operands, cycles * machine.cycle_ns, store, pack_a, pack_b)


def _pack_ns(machine: Machine, spec: SplitKSpec) -> tuple[float, float]:
    """Return the times to pack an element of A and of B in ns."""
    if spec.amx_tiles:
        return constants.TILES_ROWS_NS, constants.TILES_PAIRS_NS
    return constants.PORTION_PACK_NS * max(1.0, spec.isa.lanes / spec.a.width), constants.PORTION_PACK_NS


def timed(
    costs: Costs, problem: Problem, nest: WeightsNest, machine: Machine, threads: int
) -> Iterator[tuple[float, Division]]:
    """Yield the predicted time in ns of each way to cut a kernel's work, and the cut."""
    for cut in cuts(nest, machine, costs.spec, costs.operands, threads, problem.operand_format.itemsize):
        _, a_parts, b_parts, tap_parts, _ = cut.parts
        again = [1 if operand.moves else tap_parts for operand in (costs.spec.a, costs.spec.b)]
        alone = costs.compute_ns + costs.store_ns + costs.a_ns * b_parts * again[0] + costs.b_ns * a_parts * again[1]
        images = min(1.0, cut.largest[4] * nest.images_a_chain / nest.conv.batch)
        share = prod(cut.largest[:4]) / prod(cut.counts[:4]) * images
        time = on_threads_ns(machine, alone, share, cut, constants.IMBALANCE)
        time += machine.traffic_ns(cut.shared_bytes * (1 / cut.threads + constants.REMOTE_READ_FACTOR))
        yield time, cut


def _terms(nest: WeightsNest) -> Ints:
    """Return the number of terms of each chain of a leaf that has all its images."""
    images = min(nest.images_a_chain, nest.conv.batch)
    terms: Ints = np.diff(over_positions(1, nest.extents).begins(), append=images * nest.conv.positions)
    return terms


def _portions(terms: Ints) -> Ints:
    return -(-terms // SPLIT_TERMS)


def schedule(nest: WeightsNest, plan: SplitKPlan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest."""
    conv, spec, terms = nest.conv, plan.spec, _terms(nest)
    operands = operands_of(nest, spec, plan.operands)
    leaves = -(-conv.batch // nest.images_a_chain)
    cache_blocks, max_portions = _cache_blocks(nest, plan, terms)
    shared = len(cache_blocks) > 1
    chains, levels = chains_table(nest, *_of_chains(nest, terms), leaves, shared)
    panels = panels_of(nest, spec, plan.operands)[:4]
    all_tasks = tasks(panels, plan.parts, list(map(len, cache_blocks)), leaves * spec.tile_bytes)
    positions = _position_tables(nest, terms)
    packed, by_operand = dict[str, Ints](), dict[str, dict[str, int]]()
    for name, operand in zip(OPERANDS, operands, strict=True):
        packed[f"{name}.packed"], segments = positions[operand.tensor], 0
        if operand.operand.contiguous == SPATIAL:
            packed[f"{name}.packed"], segments = _segments(
                positions[operand.tensor], positions["within"], operand.operand.stride
            )
        numbers_of_operand = _operand_numbers(nest, plan, operand, max_portions * SPLIT_TERMS)
        by_operand[name] = numbers_of_operand | {"segments": segments}
    panel_bytes = [numbers["panel"] for numbers in by_operand.values()]
    own_bytes = placed(own_parts(spec, max(per_group(nest).values())))[1]
    scratch, scratch_bytes = scratch_of(spec, all_tasks.panels, panel_bytes, levels, True, own_bytes)
    tables: dict[str, Table] = {
        "tasks": all_tasks.table,
        "cache_blocks": np.concatenate(cache_blocks),
        "chains": chains,
        **packed,
        "existing": positions["existing"],
        **_tap_tables(nest),
    }
    numbers = {
        **{f"{name}.{column}": number for name, columns in by_operand.items() for column, number in columns.items()},
        **scratch,
        "task_count": len(all_tasks.table),
        "groups": conv.groups,
        "out_group": per_group(nest)["dst"] * nest.weights_strides[0],
        "image_parts": len(cache_blocks),
        "leaves": leaves,
        "levels": levels,
        "leaf_levels": tree.levels_of(leaves),
        "taps_contiguous": int(contiguous(tables["outs"], FORMATS[spec.output].itemsize)),
        "accumulate": int(accumulate),
        "portions": int(_portions(terms).sum()),
        "padded": int(positions["padded"][0]),
    }
    if spec.k_per_add == 2:
        add_condition(tables, numbers)
    first = (nest.src_offset, 0) if operands[0].tensor == "src" else (0, nest.src_offset)
    return Schedule(tables, numbers, scratch_bytes, first, all_tasks.partial_bytes, all_tasks.counters)


def _cache_blocks(nest: WeightsNest, plan: SplitKPlan, terms: Ints) -> tuple[list[Ints], int]:
    """Return rows of CACHE_BLOCK for each part of the batch, and the number of portions of the largest cache block."""
    leaves = -(-nest.conv.batch // nest.images_a_chain)
    ends = [min(leaf * nest.images_a_chain, nest.conv.batch) for _, leaf in evenly(leaves, plan.parts[-1])]
    step = plan.chains_a_cache_block or nest.chains
    first = np.arange(0, nest.chains, step)
    chains = first, np.append(first[1:], nest.chains)
    nothing = (np.zeros(1, np.int64),) * 2  # no rows of PACKED
    tables = [
        cache_blocks_of(part, nest, chains, (nothing, nothing), plan, len(ends) == 1) for part in pairwise([0, *ends])
    ]
    largest = int(np.add.reduceat(_portions(terms), first).max())
    return tables, largest * -(-plan.images_a_cache_block // nest.images_a_chain)


def _of_chains(nest: WeightsNest, terms: Ints) -> tuple[Ints, Ints]:
    """Return the first portion, the terms and the portions of the chains of a leaf, and of the batch's last chain."""
    portions = _portions(terms)
    of_chains = np.stack([np.cumsum(portions) - portions, terms, portions], 1)
    images = nest.conv.batch % nest.images_a_chain or nest.images_a_chain
    left = terms[-1:] - (min(nest.images_a_chain, nest.conv.batch) - images) * nest.conv.positions
    return of_chains, np.concatenate([of_chains[-1, :1], left, _portions(left)])


def _operand_numbers(nest: WeightsNest, plan: SplitKPlan, operand: OperandStrides, max_k: int) -> dict[str, int]:
    """Return the values of OPERAND. The maxima of a panel are before its minimum exponents.

    A panel has ``max_k`` positions, which are those of a whole cache block.
    """
    numbers = operand_numbers(nest, plan, operand, max_k)
    panel = numbers["read_image"] + 2 * LINE_BYTES
    prefetch = wrapped(operand.k * operand.stride * SPLIT_TERMS * constants.TILES_PREFETCH)
    return numbers | {"panel": panel, "prefetch": prefetch}


def own_parts(spec: SplitKSpec, channels: int = 0) -> dict[str, int]:
    """Return the bytes of the parts of a task's own memory.

    It has what its tiles are configured for, the addresses or segments of a portion and their number, rows to
    transpose, the sums of a chain, and zeros for absent positions, of all channels of a group. Zeros must be last,
    because the kernel does not know the number of channels.
    """
    return {
        "configured": LINE_BYTES,
        "addresses": SPLIT_TERMS * SEGMENT_BITS.bytes,
        "count": LINE_BYTES,
        "rows": max(SIDE, spec.a.width, spec.b.width) * LINE_BYTES,
        "sums": spec.tile_bytes,
        "zeros": 2 * channels + LINE_BYTES,
    }


def _position_tables(nest: WeightsNest, terms: Ints) -> dict[str, Ints]:
    """Return for each term of a leaf the offsets in src and dst, and for each tap and portion the terms that exist.

    A portion has one bit per term. Terms that are not ``within`` a chain do not exist. ``padded`` is whether any tap
    reads padding.
    """
    conv, (begins, portions) = nest.conv, (np.cumsum(terms) - terms, _portions(terms))
    chain, number = numbered(portions * SPLIT_TERMS)
    number, end = begins[chain] + number, (begins + terms)[chain]
    within = number < end
    image, position = np.divmod(np.minimum(number, end - 1), conv.positions)
    places: dict[str, Ints] = {
        "src": image * wrapped(nest.src_strides[0]),
        "dst": image * wrapped(nest.dst_strides[0]),
    }
    exist = within[None]
    for axis, index, src, dst in zip(
        conv.axes, np.unravel_index(position, nest.extents), nest.src_strides[2:], nest.dst_strides[2:], strict=True
    ):
        places["src"] += index * wrapped(axis.stride * src) - wrapped(axis.pad_begin * src)
        places["dst"] += index * dst
        spans = [axis.existing(k, range(axis.src), range(axis.dst)) for k in range(axis.kernel)]
        along = np.stack([(index >= span.start) & (index < span.stop) for span in spans])
        exist = (exist[:, None] & along).reshape(-1, number.size)
    bits = np.packbits(exist.reshape(-1, SPLIT_TERMS), axis=1, bitorder="little").view("<u4").astype(np.int64)
    padded = np.array([bool((exist != within).any())], np.int64)
    return {**places, "existing": bits, "within": within.astype(np.int64), "padded": padded}


def _segments(places: Ints, within: Ints, stride: int) -> tuple[Ints, int]:
    """Return a table with the same number of rows of SEGMENT_BITS for each portion, and this number.

    Neighbours are ``stride`` elements apart. Terms that are not ``within`` their chain belong to any segment, because
    they do not exist for any tap.

    >>> _segments(np.array([0, 2, 4, *[100, 102] * 14, 0]), np.array([1] * 5 + [0] * 27), 1)[0].tolist()
    [[0, 7], [94, 4294967288]]
    """
    portions, step = places.reshape(-1, SPLIT_TERMS), stride * BF16.itemsize
    begins = np.diff(portions, axis=1, prepend=portions[:, :1] - 1) != step
    begins &= within.reshape(portions.shape) != 0
    number = np.cumsum(begins, axis=1) - 1
    count = int(number.max()) + 1
    offset, bits = np.zeros((2, len(portions), count), np.int64)
    portion, term = np.nonzero(begins)
    offset[portion, number[portion, term]] = portions[portion, term] - term * step
    portion, term = np.indices(portions.shape)
    np.add.at(bits, (portion, number), np.int64(1) << term)
    return SEGMENT_BITS.table(bits.size, offset=offset.ravel(), bits=bits.ravel()), count


def _tap_tables(nest: WeightsNest) -> dict[str, Ints]:
    """Return the byte offset of each tap in src and in the weights."""
    kernel = nest.conv.kernel
    along = [
        [wrapped(k * axis.dilation * step) for k in range(axis.kernel)]
        for axis, step in zip(nest.conv.axes, nest.src_strides[2:], strict=True)
    ]
    of_src = np.array([wrapped(sum(steps)) for steps in product(*along)], np.int64)
    return {"taps": of_src, "outs": offsets(kernel, nest.weights_strides[2:]).reshape(-1, 1)}
