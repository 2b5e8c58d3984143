"""Dask's graph of a weight gradient: its parts are all leaves of the batch, and 16 neighbours are joined at a time."""

from __future__ import annotations

import operator
from typing import Any

import pytest

pytest.importorskip("dask.array")
import dask.array as da
from dask._task_spec import Task

import convgrad.dask
from convgrad.dask.tasks import Sum
from convgrad.notation import problem
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images

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
