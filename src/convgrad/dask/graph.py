"""The Dask graph of a call: tasks that read the blocks of the operands and compute the blocks of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from convgrad.dask.blocks import ArrayBlocks, Chunks
from convgrad.dask.chunks import BatchPiece, coincide, summed, written
from convgrad.dask.fused import OnCuts, are_blocks, beside, on_blocks
from convgrad.dask.tasks import CopyTask, JoinTask, Sum, SumRows, Write, add_parts, add_rows, whole_images
from convgrad.functional.partials import SUMMED
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import Tensor, find
from convgrad.spec.order import FAN_IN
from convgrad.spec.problem import Problem
from convgrad.spec.subproblems import Ranges, subproblem_of, whole

Key = tuple[Any, ...]
Argument = Any  # an argument of a task: a TaskRef, or a nested Task
Data = Mapping[Tensor, Any]  # dask arrays by operand
CHANNELS = 1  # the axis of channels in canonical data


class TaskGraph:
    """The tasks of a call by key, and its layers of tasks on whole blocks.

    A part of a block has a task with its own key, so the part is cut from the block only once.
    """

    def __init__(self, problem: Problem, operands: Data, threads: int) -> None:
        self.problem, self.operands, self.threads = problem, operands, threads
        self.label = problem.operator.removesuffix("-1")
        self.token = tokenize(repr(problem), [array.name for array in operands.values()], threads)
        self.name = f"{self.label}-{self.token}"
        self.tasks: dict[Key, Task] = {}
        # Layers of tasks on whole blocks. If there are such layers, ``tasks`` read only them.
        self.layers: dict[str, Blockwise] = {}
        self._beside = ""  # the name of the layer of ``read_beside``
        self._names = dict(zip(problem.operands, find(problem.operator).array_names, strict=False))
        self._blocks = {tensor: ArrayBlocks(array.chunks) for tensor, array in operands.items()}

    def put(
        self, kind: str, at: tuple[int, ...], task: Callable[..., object], arguments: Sequence[Argument]
    ) -> TaskRef:
        """Add a task that is called with the given arguments, and return a reference to its value."""
        return self._put((f"{self.label}-{kind}-{self.token}", *at), task, arguments)

    def put_result(self, at: tuple[int, ...], task: Callable[..., object], arguments: Sequence[Argument]) -> TaskRef:
        """Add a task whose value is a block of the result, and return a reference to it."""
        return self._put((self.name, *at), task, arguments)

    def _put(self, key: Key, task: Callable[..., object], arguments: Sequence[Argument]) -> TaskRef:
        self.tasks[key] = Task(key, task, *arguments)
        return TaskRef(key)

    def reading(
        self, task: type[Write | Sum | SumRows], images: range, ranges: Ranges
    ) -> tuple[Write | Sum | SumRows, list[Argument]]:
        """Return a task on images and a region, and references to the blocks or parts that it reads."""
        blocks: list[Argument] = []
        extents: list[Chunks] = []
        regions = subproblem_of(self.problem, images, ranges).reads
        for tensor, region in zip(self.problem.operands, regions, strict=True):
            read = self._blocks[tensor].read(region)
            extents.append(read.extents)
            blocks += [self._part(tensor, *part) for part in read.parts]
        return task(self.problem, images, ranges, tuple(extents), self.threads), blocks

    def _part(self, tensor: Tensor, block: tuple[int, ...], within: tuple[slice, ...], is_whole: bool) -> Argument:
        """Return a reference to a block, or to a part of it."""
        whole_block = self._block(tensor, block)
        if is_whole:
            return whole_block
        ends = (end for span in within for end in (span.start, span.stop))
        return self.put(f"read-{tensor}", (*block, *ends), self._cut(tensor, block, within), [whole_block])

    def _block(self, tensor: Tensor, block: tuple[int, ...]) -> Argument:
        if not self._beside:
            return TaskRef((self.operands[tensor].name, *block))
        return Task(None, itemgetter(list(self.operands).index(tensor)), TaskRef((self._beside, *block)))

    def read_beside(self) -> None:
        """Add a layer in which a task reads all operands' blocks of the same index. Later tasks read this layer."""
        self._beside = f"{self.label}-read-{self.token}"
        self.layers[self._beside] = beside(self._beside, list(self.operands.values()))

    def _cut(self, tensor: Tensor, block: tuple[int, ...], within: tuple[slice, ...]) -> CopyTask:
        chunks = self.operands[tensor].chunks
        shape = tuple(axis[n] for axis, n in zip(chunks, block, strict=True))
        return CopyTask(self.problem, self._names[tensor], shape, within)

    def put_on_blocks(self, kind: str, rank: int, task: type[Write | Sum], images: Sequence[range]) -> list[TaskRef]:
        """Add a layer with a task for each range of images, which are whole blocks; return references to its tasks.

        ``kind`` is a part of the layer's name. It is empty if the layer is the result.
        """
        name = f"{self.label}-{kind}-{self.token}" if kind else self.name
        everything, tasks = whole(self.problem), []
        for some in images:
            regions = subproblem_of(self.problem, some, everything).reads
            reads = {t: self._blocks[t].read(region) for t, region in zip(self.problem.operands, regions, strict=True)}
            extents = tuple(read.extents for read in reads.values())
            block_task = task(self.problem, some, everything, extents, self.threads)
            parts = [(t, *part) for t, read in reads.items() for part in read.parts]
            cuts = tuple(None if is_whole else self._cut(t, block, within) for t, block, within, is_whole in parts)
            tasks.append(block_task if not any(cuts) else OnCuts(block_task, cuts))
        self.layers[name] = on_blocks(name, rank, tasks, self.operands)
        return [TaskRef((name, n, *[0] * (rank - 1))) for n in range(len(images))]

    def array(self, chunks: Chunks) -> Any:
        """Return the dask array whose blocks the added result tasks compute."""
        graph = HighLevelGraph.merge(*(array.dask for array in self.operands.values()))
        names = {array.name for array in self.operands.values()}
        layers, dependencies = dict(graph.layers), dict(graph.dependencies)
        for name, layer in self.layers.items():
            layers[name], dependencies[name] = layer, names
        if self.tasks:
            layers[self.name] = MaterializedLayer(self.tasks)
            dependencies[self.name] = set(self.layers) or names
        graph = HighLevelGraph(layers, dependencies)
        meta = np.empty((0,) * len(chunks), self.problem.output_format.dtype)
        return da.Array(graph, self.name, chunks, meta=meta)


def array_of(problem: Problem, operands: Data, threads: int) -> Any:
    """Return a problem's result as a dask array. The operands are dask arrays of the problem's shapes and type."""
    if any(0 in shape for shape in (problem.output_shape, *(array.shape for array in operands.values()))):
        return _without_terms(problem, operands, threads)
    graph = TaskGraph(problem, operands, threads)
    return _sum(graph) if problem.solves_for in SUMMED else _write(graph)


def _without_terms(problem: Problem, operands: Data, threads: int) -> Any:
    """Return a result that is empty or whose sums have no terms, so that it consists of zeros or of the bias."""
    if "bias" not in problem.operands:
        return da.zeros(problem.output_shape, dtype=problem.output_format.dtype, chunks=-1)
    single = {tensor: array.rechunk(-1) for tensor, array in operands.items()}
    graph = TaskGraph(problem, single, threads)
    extents = tuple(array.chunks for array in single.values())
    task = Write(problem, range(problem.geometry.batch), whole(problem), extents, threads)
    blocks = [TaskRef((array.name, *[0] * array.ndim)) for array in single.values()]
    graph.put_result((0,) * len(problem.output_shape), task, blocks)
    return graph.array(tuple((extent,) for extent in problem.output_shape))


def _sum(graph: TaskGraph) -> Any:
    """Return a weight or bias gradient. Tasks sum its pieces, then combine 16 sums at a time in the tree's order."""
    problem = graph.problem
    chunks = {tensor: array.chunks for tensor, array in graph.operands.items()}
    pieces = summed(problem, chunks)
    images = [piece.images for piece in pieces]
    if pieces[0].regions == (whole(problem),) and are_blocks(graph.operands, images):
        parts = graph.put_on_blocks("part", 2, Sum, images)
    else:
        if coincide(problem, chunks):
            graph.read_beside()
        parts = [_part(graph, at, piece) for at, piece in enumerate(pieces)]
    parts = _climbed(graph, "sum", (), parts, add_parts)
    shape = problem.output_shape
    graph.put_result((0,) * len(shape), JoinTask(problem.output_format.name), parts)
    return graph.array(tuple((extent,) for extent in shape))


def _part(graph: TaskGraph, at: int, piece: BatchPiece) -> TaskRef:
    """Add the tasks that sum a piece; return a reference to its partial sums."""
    if piece.regions == (whole(graph.problem),):
        return graph.put("part", (at,), *graph.reading(Sum, piece.images, piece.regions[0]))
    rows = [
        graph.put("rows", (at, row), *graph.reading(SumRows, piece.images, ranges))
        for row, ranges in enumerate(piece.regions)
    ]
    return graph.put("part", (at,), whole_images, _climbed(graph, "rows-sum", (at,), rows, add_rows))


def _climbed(
    graph: TaskGraph, kind: str, at: tuple[int, ...], sums: list[TaskRef], task: Callable[..., object]
) -> list[TaskRef]:
    """Combine neighbouring sums, 16 at a time, until at most 16 sums remain; return references to them."""
    level = 0
    while len(sums) > FAN_IN:
        groups = [sums[first : first + FAN_IN] for first in range(0, len(sums), FAN_IN)]
        sums = [graph.put(kind, (*at, level, n), task, group) for n, group in enumerate(groups)]
        level += 1
    return sums


def _write(graph: TaskGraph) -> Any:
    """Return a forward or data gradient, with one task for each block of the result."""
    problem = graph.problem
    data = problem.operands[0]
    regions = written(problem, data, graph.operands[data].chunks)
    axes = (regions.images, *regions.axes)
    if are_blocks(graph.operands, regions.images):
        graph.put_on_blocks("", len(problem.output_shape), Write, regions.images)
    else:
        for at in product(*(range(len(along)) for along in axes)):
            images, *ranges = (along[n] for along, n in zip(axes, at, strict=True))
            index = from_canonical((at[0], 0, *at[1:]), problem.layouts[-1])
            graph.put_result(index, *graph.reading(Write, images, tuple(ranges)))
    extents = [tuple(map(len, along)) for along in axes]
    extents.insert(CHANNELS, (problem.output_shape[problem.output_order[CHANNELS]],))
    return graph.array(from_canonical(extents, problem.layouts[-1]))  # type: ignore[arg-type]
