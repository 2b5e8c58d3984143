"""The pieces into which a problem is divided, given the chunks of its operands. This module does not need Dask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod

from convgrad.dask.blocks import Chunks
from convgrad.spec.geometry import Axis, Channels
from convgrad.spec.image_cuts import blocks_of, row_step
from convgrad.spec.layouts import to_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images, nodes_of
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.subproblems import Ranges, positions, swept, whole

SUM_BYTES = 4  # bytes of an element of a sum, which is f32
SPATIAL = 2  # the number of axes before the spatial axes in canonical data


@dataclass(frozen=True)
class BatchPiece:
    """A piece of a sum over the batch: a range of images, and the regions of an image that are summed separately.

    There is one region with all positions, or there are several adjacent regions of rows.
    """

    images: range
    regions: tuple[Ranges, ...]


@dataclass(frozen=True)
class Written:
    """The result of a forward or data gradient in blocks: ranges of images, and of positions per spatial axis."""

    images: tuple[range, ...]
    axes: tuple[tuple[range, ...], ...]

    @property
    def regions(self) -> list[tuple[range, Ranges]]:
        """The images and the region of each block, row-major in canonical order."""
        return [(images, ranges) for images, *ranges in product(self.images, *self.axes)]  # type: ignore[misc]


def summed(problem: Problem, chunks_of: Mapping[Tensor, Chunks]) -> tuple[BatchPiece, ...]:
    """Return the pieces of a weight or bias gradient, given the chunks of src and dst. No operand may be empty.

    The batch is cut between leaves of the reduction tree, near the ends of chunks. Each image is cut into rows near the
    ends of chunks of its first axis, if the order of the sum permits it (``spec.image_cuts.row_step``).

    >>> from convgrad.notation import problem
    >>> one, chunks = problem("BWD_W f32 NCX mb50ic4ih7oc4oh7kh3ph1"), ((8,) * 6 + (2,), (4,), (7,), (7,))
    >>> [piece.images for piece in summed(one, {"src": chunks, "dst": chunks})]  # a leaf has 5 images
    [range(0, 10), range(10, 15), range(15, 25), range(25, 30), range(30, 40), range(40, 50)]
    """
    batch, per_leaf = problem.geometry.batch, leaf_images(problem.geometry)
    *operands, output = map(prod, canonical_shapes(problem))
    image_bytes = sum(operands) * problem.operand_format.itemsize // batch
    lie = dict(zip(problem.operands, problem.layouts, strict=False))
    canonical = {tensor: to_canonical_chunks(chunks, lie[tensor]) for tensor, chunks in chunks_of.items()}
    finest = max((ends_of(chunks[0]) for chunks in canonical.values()), key=len)
    at = cuts(finest, per_leaf, lambda image: -(-image // per_leaf), image_bytes, output * SUM_BYTES)
    regions = _rows(problem, canonical, image_bytes, output * SUM_BYTES)
    return tuple(BatchPiece(images, regions) for images in ranges_between(at))


def coincide(problem: Problem, chunks_of: Mapping[Tensor, Chunks]) -> bool:
    """Return whether there are several operands, and their blocks of the same index have the same images and positions.

    >>> from convgrad.notation import problem
    >>> half, dst = problem("BWD_W f32 NCX mb8ic3iw20oc4ow10kw3sw2pw1"), ((4, 4), (4,), (5, 5))
    >>> [coincide(half, {"src": ((4, 4), (3,), rows), "dst": dst}) for rows in ((10, 10), (8, 12), (20,))]
    [True, False, False]
    """
    lie, axes = dict(zip(problem.operands, problem.layouts, strict=False)), range(len(positions(problem)))
    canonical = {tensor: to_canonical_chunks(chunks, lie[tensor]) for tensor, chunks in chunks_of.items()}
    ends = {
        (ends_of(chunks[0]), *(_ends_of_positions(problem, tensor, chunks, axis) for axis in axes))
        for tensor, chunks in canonical.items()
    }
    return len(ends) == len({tuple(map(len, chunks)) for chunks in canonical.values()}) == 1 < len(canonical)


def _rows(
    problem: Problem, canonical: Mapping[Tensor, Chunks], image_bytes: int, output_bytes: int
) -> tuple[Ranges, ...]:
    """Return the regions into which each image is cut. A region has some rows, or all positions."""
    extents, everything = positions(problem), whole(problem)
    step = row_step(extents)
    if step is None:
        return (everything,)
    ends = max((_ends_of_positions(problem, tensor, axes, 0) for tensor, axes in canonical.items()), key=len)
    row_bytes = image_bytes // extents[0]
    at = cuts(ends, step, lambda row: blocks_of(extents, range(row)).stop, row_bytes, output_bytes)
    return tuple((rows, *everything[1:]) for rows in ranges_between(at))


def written(problem: Problem, tensor: Tensor, chunks: Chunks) -> Written:
    """Return the blocks of the result of a forward or data gradient, given the chunks of its operand ``tensor``.

    An output position belongs to the chunk that contains the middle of the positions that it depends on.

    >>> from convgrad.notation import problem
    >>> one = problem("FWD_D f32 NCX mb3ic4iw20oc4ow10kw3sw2pw1")
    >>> written(one, "src", ((2, 1), (4,), (8, 12))).axes
    ((range(0, 4), range(4, 10)),)
    """
    canonical = to_canonical_chunks(chunks, problem.layouts[problem.operands.index(tensor)])
    axes = range(len(positions(problem)))
    return Written(
        ranges_between(ends_of(canonical[0])),
        tuple(ranges_between(_ends_of_positions(problem, tensor, canonical, axis)) for axis in axes),
    )


def to_canonical_chunks(chunks: Chunks, layout: str) -> Chunks:
    """Return chunks in the canonical order of axes."""
    return to_canonical(chunks, layout)  # type: ignore[arg-type, return-value]


def ends_of(chunks: Sequence[int]) -> tuple[int, ...]:
    """Return the ends of the chunks that are not empty.

    >>> ends_of((2, 0, 3))
    (2, 5)
    """
    return tuple(dict.fromkeys(end for end in accumulate(chunks) if end))


def ranges_between(ends: Sequence[int]) -> tuple[range, ...]:
    """Return the adjacent ranges with these ends. The first range begins at 0."""
    return tuple(range(*bounds) for bounds in pairwise((0, *ends)))


def _ends_of_positions(problem: Problem, tensor: Tensor, canonical: Chunks, axis: int) -> tuple[int, ...]:
    """Return the ends of the ranges of positions that belong to the chunks of ``tensor`` along a spatial axis."""
    geometry, ends, extent = problem.geometry, ends_of(canonical[SPATIAL + axis]), positions(problem)[axis]
    if not isinstance(geometry, Channels) and tensor != swept(problem):
        before = _src_before if tensor == "dst" else _dst_before
        ends = (*(before(geometry.axes[axis], end) for end in ends[:-1]), extent)
    return tuple(dict.fromkeys(min(end, extent) for end in ends if end > 0))


def _dst_before(axis: Axis, end: int) -> int:
    """Return the number of positions of dst whose middle tap reads a position of src before ``end``."""
    return -(-(end + axis.pad_begin - (axis.effective_kernel - 1) // 2) // axis.stride)


def _src_before(axis: Axis, end: int) -> int:
    """Return the position of src that the middle tap of the position ``end`` of dst reads."""
    return end * axis.stride - axis.pad_begin + (axis.effective_kernel - 1) // 2


def cuts(
    ends: Sequence[int], smallest: int, leaf_at: Callable[[int], int], unit_bytes: int, sum_bytes: int
) -> tuple[int, ...]:
    """Return the cuts of an axis: multiples of a grain near the ``ends`` of its chunks, and the extent of the axis.

    The grain is ``smallest``, or ``smallest`` times 16, 256 and so on. The function chooses the grain that moves the
    fewest bytes between blocks. If a cut is not the end of a chunk, parts of blocks are moved, of ``unit_bytes`` per
    position. If a cut is not a multiple of 16 or 256 leaves, there are more partial sums, and each is moved as an array
    of ``sum_bytes``. Grains that give far fewer pieces than chunks are excluded. ``leaf_at`` returns the number of
    leaves before a cut.

    >>> cuts((24, 48, 72, 96), 1, int, 10, 1), cuts((24, 48, 72, 96), 1, int, 1, 100)
    ((24, 48, 72, 96), (32, 48, 80, 96))
    >>> cuts((3, 6, 7), 5, lambda image: -(-image // 5), 1, 1)
    (5, 7)
    """
    total, longest = ends[-1], max(len(span) for span in ranges_between(ends))
    grains = [smallest]
    while 2 * grains[-1] * FAN_IN <= 3 * longest:
        grains.append(grains[-1] * FAN_IN)

    def moved(grain: int) -> tuple[int, tuple[int, ...]]:
        nearest = [min((end + grain // 2) // grain * grain, total) for end in ends[:-1]]
        at = tuple(dict.fromkeys(cut for cut in (*nearest, total) if cut))
        units = sum(abs(cut - end) for cut, end in zip(nearest, ends, strict=False))
        sums = sum(len(nodes_of(*leaves)) for leaves in pairwise((0, *map(leaf_at, at))))
        return units * unit_bytes + sums * sum_bytes, at

    return min(map(moved, grains))[1]
