"""Where Dask's pieces are cut: at leaves, near the ends of chunks, where least is moved; and which are joined.

The parts of a weight gradient are all leaves of the batch, and 16 neighbours are joined at a time.
"""

from __future__ import annotations

import operator
import random
from itertools import pairwise
from typing import Any

import pytest

from convgrad.notation import problem
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images

pytest.importorskip("dask.array")

import dask.array as da
from dask._task_spec import Task

import convgrad.dask
from convgrad.dask.blocks import ArrayBlocks
from convgrad.dask.chunks import cuts, ends_of, summed, written
from convgrad.dask.tasks import Sum

DEEP = problem("BWD_W f32 NCX mb200ic512ih14oc512oh14kh3ph1")  # a sum is 11 images
WIDE = problem("BWD_W f32 NCX mb200ic64ih112oc64oh112kh3ph1")  # and here 1/40 of one
LINES = (
    "FWD_D f32 NCX mb7ic4ih23iw40oc6oh6ow14kh3sh4sw3ph1pw1kw3",
    "BWD_D f32 NCX mb7ic4ih23iw40oc6oh6ow14kh3sh4sw3ph1pw1kw3",
    "FWD_D f32 NCX mb7ic4ih5iw20oc6oh25ow20kh3ph11pw1kw3",
    "BWD_D f32 NCX mb7ic4ih30iw20oc6oh2ow20kh3ph0pw1sh20sw19kw3",
)


def test_cuts_are_leaves_near_the_ends_of_chunks() -> None:
    """Of any chunks; no piece is empty, and none longer than two chunks and a leaf."""
    chance = random.Random(1)
    for _ in range(300):
        chunks = [chance.choice((1, 3, 7, 16, 64, chance.randrange(1, 300))) for _ in range(chance.randrange(1, 20))]
        each, unit, held = chance.choice((1, 1, 2, 5, 64)), chance.randrange(1, 10), chance.choice((1, 100, 10**6))
        ends = ends_of(chunks)
        at = (0, *cuts(ends, each, lambda image, each=each: -(-image // each), unit, held))
        assert at[-1] == sum(chunks)
        assert all(a < b for a, b in pairwise(at))
        assert not any(cut % each for cut in at[:-1])
        assert max(b - a for a, b in pairwise(at)) <= 2 * max(chunks) + each


@pytest.mark.parametrize(("one", "starts"), [(WIDE, [0, 40, 80, 120, 160]), (DEEP, [0, 48, 80, 128, 160])])
def test_a_cut_moves_images_where_the_sums_that_would_wait_are_larger(one: object, starts: list[int]) -> None:
    chunks = {tensor: ((40,) * 5, (shape[1],), *((n,) for n in shape[2:])) for tensor, shape in shapes(one).items()}
    pieces = summed(one, chunks)  # type: ignore[arg-type]
    assert [piece.images.start for piece in pieces] == starts
    assert (one is DEEP) == all(start % FAN_IN == 0 for start in starts)


def shapes(one: object) -> dict[str, tuple[int, ...]]:
    geometry = one.geometry  # type: ignore[attr-defined]
    return {"src": geometry.src_shape, "dst": geometry.dst_shape}


def test_rows_are_cut_where_the_image_can_be() -> None:
    """Blocks of 4 rows of 56 positions; the finer operand's chunks count."""
    one = problem("BWD_W f32 NCX mb2ic4ih113iw112oc4oh56ow56kh3kw3sh2sw2ph0pw0")
    src = ((2,), (4,), (14, 20, 79), (112,))
    found = summed(one, {"src": src, "dst": ((2,), (4,), (56,), (56,))})
    assert [[box[0] for box in piece.regions] for piece in found] == [[range(0, 8), range(8, 16), range(16, 56)]]


def test_boxes_of_a_result_tile_it_in_any_chunks() -> None:
    """Each position is written once, whatever strides, pads and dilations say of which chunk it belongs to."""
    chance = random.Random(2)
    for line in LINES * 20:
        one = problem(line)
        (tensor, *_), geometry = one.operands, one.geometry
        data = geometry.src_shape if tensor == "src" else geometry.dst_shape  # type: ignore[union-attr]
        ends = (sorted({*chance.sample(range(1, n), min(n - 1, chance.randrange(4))), n}) for n in data)
        chunks = tuple(tuple(b - a for a, b in pairwise((0, *some))) for some in ends)
        found = written(one, tensor, chunks)
        extents = [a.dst if tensor == "src" else a.src for a in geometry.axes]  # type: ignore[union-attr]
        for runs, extent in zip((found.images, *found.axes), (7, *extents), strict=True):
            assert [n for run in runs for n in run] == list(range(extent))
            assert all(runs)


def test_a_region_is_read_of_the_blocks_that_it_meets() -> None:
    """Of each what is there, in order; blocks of no extent are met by none."""
    read = ArrayBlocks(((3, 0, 4, 5), (2, 2))).read((slice(2, 8), slice(0, 2)))
    assert [part.block for part in read.parts] == [(0, 0), (2, 0), (3, 0)]
    assert [part.within[0] for part in read.parts] == [slice(2, 3), slice(0, 4), slice(0, 1)]
    assert [part.is_whole for part in read.parts] == [False, True, False]
    assert read.extents == ((1, 4, 1), (2,))


# -- joins -------------------------------------------------------------------------------------------------------------

LAYERS = {  # a problem line, extents, and chunks of images
    "packs": ("BWD_W f32 NXC mb601ic2ih7oc3oh7kh3ph1", (7, 7), [3, 5, 64, 80, 1000]),
    "images": ("BWD_W f32 NXC mb600ic2ih20oc3oh20kh3ph1", (20, 20), [1, 7, 16, 64, 600, (250, 3, 90, 257)]),
}
CASES = [(name, chunk) for name, (_, _, chunks) in LAYERS.items() for chunk in chunks]


def graph_of(line: str, extents: tuple[int, ...], chunk: Any) -> dict[Any, Any]:
    """Return the tasks of a weight gradient by key: the called function and the tasks that it needs."""
    conv: Any = problem(line).geometry
    src, dst = (
        da.zeros((conv.batch, *extents, channels), dtype="f4", chunks=(chunk, -1, -1, -1))
        for channels in (conv.src_channels, conv.dst_channels)
    )
    layer: dict[str, Any] = {"weights_shape": (3, 3, conv.src_channels, conv.dst_channels), "auto_pad": "same_upper"}
    result = convgrad.dask.run("ConvolutionBackwardWeights", src, dst, **layer)
    graph = dict(result.dask)
    tasks = {key: graph[key] for key in graph if key[0].startswith("Conv") and "-read" not in key[0]}
    return {key: (called(task), sorted(task.dependencies & tasks.keys())) for key, task in tasks.items()}


def called(task: Task) -> Any:
    """Return the function of a task; a task on whole blocks has it as an argument."""
    return task.args[0].value if task.func is operator.call else task.func


def joined(level: list[range]) -> list[range]:
    """Return the leaves of each 16 neighbours."""
    groups = [level[first : first + FAN_IN] for first in range(0, len(level), FAN_IN)]
    return [range(group[0].start, group[-1].stop) for group in groups]


@pytest.mark.parametrize(("name", "chunk"), CASES)
def test_16_neighbours_are_joined(name: str, chunk: Any) -> None:
    line, extents, _ = LAYERS[name]
    conv = problem(line).geometry
    leaf = leaf_images(conv)
    spans: dict[Any, range] = {}
    parts, joins = [], []
    for key, (task, needs) in graph_of(line, extents, chunk).items():
        if isinstance(task, Sum):
            spans[key] = range(task.images.start // leaf, -(-task.images.stop // leaf))
            parts.append(spans[key])
        else:
            spans[key] = range(spans[needs[0]].start, spans[needs[-1]].stop)
            joins.append(spans[key])
    assert [number for part in parts for number in part] == list(range(-(-conv.batch // leaf)))
    levels = [joined(parts)]
    while len(levels[-1]) > 1:
        levels.append(joined(levels[-1]))
    assert joins == [span for level in levels for span in level]
