"""The NumPy engine: one BLAS product per tap and block, where blocks of images and positions have bounded size.

Its results satisfy the error bound, but their bits depend on the machine. Operands are copied block by block as
(group, channel, image and position), in the accumulator's format. The sums of one block of the output, or of all
weights, are in memory at a time. The product of a tap covers only positions at which the tap exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from convgrad.array_types import Array, Dtype, Selection
from convgrad.engines.addresses import array_at
from convgrad.engines.engine import Strides
from convgrad.float_environment import in_default_environment
from convgrad.formats import round_to
from convgrad.spec.activation import activate
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.samples import squares_in_order

BLOCK_BYTES = 4 << 20
SUMMED_POINTS = 2048

Ranges = tuple[range, ...]


@in_default_environment
def execute(problem: Problem, operands: Sequence[Array], out: Array) -> None:
    """Compute a problem from canonical operands into the canonical view ``out``; add to ``out`` if it accumulates."""
    arrays: dict[str, Array] = dict(zip(problem.operands, operands, strict=True))
    with np.errstate(all="ignore"):
        _SOLVERS[problem.solves_for](problem, arrays, out)


# -- blocks --------------------------------------------------------------------------------------------------------


def block_extents(extents: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the extents of blocks of at most ``limit`` points for a grid with these extents.

    Blocks are as long as possible along the last axes.

    >>> block_extents((8, 56, 56), 2000)
    (1, 35, 56)
    """
    steps, room = [], max(1, limit)
    for extent in reversed(extents):
        steps.append(max(1, min(extent, room)))
        room = max(1, room // steps[-1])
    return tuple(reversed(steps))


def blocks(extents: Sequence[int], steps: Sequence[int]) -> Iterator[Ranges]:
    """Divide a grid into blocks with the extents ``steps``; yield the range of each axis, block by block, row-major.

    >>> [tuple((r.start, r.stop) for r in block) for block in blocks((2, 3), (1, 2))]
    [((0, 1), (0, 2)), ((0, 1), (2, 3)), ((1, 2), (0, 2)), ((1, 2), (2, 3))]
    """
    if 0 in extents:
        return iter(())
    cuts = [
        [range(first, min(first + step, extent)) for first in range(0, extent, step)]
        for extent, step in zip(extents, steps, strict=True)
    ]
    return product(*cuts)


def _dtype(problem: Problem) -> Dtype:
    """Return the dtype in which sums are computed."""
    return problem.operand_format.accumulator.dtype


def _grid(problem: Problem) -> tuple[int, ...]:
    """Return the extents (images, positions...) of the grid that is divided into blocks.

    The grid is that of src in backward data, of the tensor of a bias operator, and of dst otherwise.
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        return (geometry.batch, *geometry.extents)
    return (geometry.batch, *(a.src if problem.solves_for == "src" else a.dst for a in geometry.axes))


def _channels(problem: Problem) -> int:
    """Return the number of channels of src and dst together, or of the tensor of a bias operator."""
    geometry = problem.geometry
    return geometry.channels if isinstance(geometry, Channels) else geometry.src_channels + geometry.dst_channels


def _block_extents(problem: Problem) -> tuple[int, ...]:
    """Return the extents of a block: all its channels fit BLOCK_BYTES, and at most SUMMED_POINTS points are summed."""
    points = BLOCK_BYTES // (max(1, _channels(problem)) * _dtype(problem).itemsize)
    if problem.solves_for in ("weights", "bias"):
        points = min(points, SUMMED_POINTS)
    return block_extents(_grid(problem), points)


def _blocks(problem: Problem) -> Iterator[Ranges]:
    return blocks(_grid(problem), _block_extents(problem))


def _load(tensor: Array, where: Selection, groups: int, problem: Problem) -> Array:
    """Return a part of an (N, C, X...) tensor as a copy (group, channel, image and position) for one BLAS product."""
    part = tensor[where].swapaxes(0, 1)
    copied = np.ascontiguousarray(part, _dtype(problem))
    return copied.reshape(groups, part.shape[0] // groups, prod(part.shape[1:]))


def _taps(conv: Conv, src: Ranges, dst: Ranges) -> Iterator[tuple[tuple[int, ...], Ranges, tuple[slice, ...]]]:
    """Yield each tap that exists, the positions in ``dst`` at which it exists, and slices of the positions in src."""
    for tap in product(*(range(k) for k in conv.kernel)):
        existing = tuple(a.existing(k, s, d) for a, k, s, d in zip(conv.axes, tap, src, dst, strict=True))
        if all(existing):
            yield tap, existing, tuple(a.source(k, p) for a, k, p in zip(conv.axes, tap, existing, strict=True))


def _weights_of(tap: tuple[int, ...], weights: Array, problem: Problem, conv: Conv) -> Array:
    """Return the (O, C/g, K...) weights of one tap as a copy (group, channel of dst, channel of src)."""
    index: Selection = (..., *tap)
    part = np.ascontiguousarray(weights[index], _dtype(problem))
    return part.reshape(conv.groups, conv.dst_channels // conv.groups, conv.src_channels // conv.groups)


def _add(products: Array, target: Array) -> None:
    """Add products [group, channel, image * position] to sums [image, channel, position...]."""
    images, channels, *positions = target.shape
    target += products.reshape(channels, images, *positions).swapaxes(0, 1)


def store_sums(sums: Array, out: Array, problem: Problem, bias: Array | None) -> None:
    """Store sums into ``out`` by the specified steps: +0, bias, old value, activation, one rounding, canonical NaN."""
    sums += 0.0  # -0 becomes +0
    if bias is not None:
        sums += bias.astype(sums.dtype).reshape(1, -1, *[1] * (sums.ndim - 2))
    if problem.accumulate:
        sums += out.astype(sums.dtype)
    sums = activate(sums, problem)
    if sums.dtype == np.float64:  # astype from f64 to bf16 would round twice, because it goes through f32
        sums = round_to(sums, problem.output_format)
    result = sums.astype(problem.output_format.dtype)
    nan = np.isnan(result)
    if nan.any():
        result[nan] = np.nan
    out[...] = result


# -- one function per pass -----------------------------------------------------------------------------------------


def _solve_data(problem: Problem, arrays: Mapping[str, Array], out: Array) -> None:
    """Compute forward or backward data: for each block of the output, add the products of all taps."""
    conv, weights, backward = _conv(problem), arrays["weights"], problem.solves_for == "src"
    operand, channels = (arrays["dst"], conv.src_channels) if backward else (arrays["src"], conv.dst_channels)
    everywhere = tuple(range(a.dst if backward else a.src) for a in conv.axes)
    for images, *positions in _blocks(problem):
        block = tuple(positions)
        sums = _zeros(channels, (images, *block), problem)
        for tap, existing, sources in _taps(conv, *((block, everywhere) if backward else (everywhere, block))):
            targets = tuple(map(_slice, existing))
            read, stored = (targets, sources) if backward else (sources, targets)
            x = _load(operand, (_slice(images), slice(None), *read), conv.groups, problem)
            w = _weights_of(tap, weights, problem, conv)
            shifted = (slice(s.start - r.start, s.stop - r.start, s.step) for s, r in zip(stored, block, strict=True))
            _add((w.swapaxes(1, 2) if backward else w) @ x, sums[(slice(None), slice(None), *shifted)])
        store_sums(sums, out[_index(images, positions)], problem, arrays.get("bias"))


def _solve_weights(problem: Problem, arrays: Mapping[str, Array], out: Array) -> None:
    conv, src, dst = _conv(problem), arrays["src"], arrays["dst"]
    everywhere = tuple(range(a.src) for a in conv.axes)
    per_group = (conv.groups, conv.dst_channels // conv.groups, conv.src_channels // conv.groups)
    sums = np.zeros((conv.taps, *per_group), _dtype(problem))
    for images, *positions in _blocks(problem):
        for tap, existing, sources in _taps(conv, everywhere, tuple(positions)):
            dy = _load(dst, (_slice(images), slice(None), *map(_slice, existing)), conv.groups, problem)
            x = _load(src, (_slice(images), slice(None), *sources), conv.groups, problem)
            sums[np.ravel_multi_index(tap, conv.kernel)] += dy @ x.swapaxes(1, 2)
    canonical = sums.reshape(*conv.kernel, conv.dst_channels, per_group[2])
    axes = len(conv.kernel)
    store_sums(canonical.transpose(axes, axes + 1, *range(axes)), out, problem, None)


def _solve_bias_add(problem: Problem, arrays: Mapping[str, Array], out: Array) -> None:
    for images, *positions in _blocks(problem):
        block = _index(images, positions)
        store_sums(arrays["src"][block].astype(_dtype(problem)), out[block], problem, arrays["bias"])


def _solve_bias(problem: Problem, arrays: Mapping[str, Array], out: Array) -> None:
    dtype = _dtype(problem)
    sums = np.zeros(out.shape, dtype)
    for images, *positions in _blocks(problem):
        part = arrays["dst"][_index(images, positions)]
        sums += part.astype(dtype).sum(axis=(0, *range(2, part.ndim)))
    store_sums(sums, out, problem, None)


_SOLVERS: Mapping[str, Callable[[Problem, Mapping[str, Array], Array], None]] = {
    "dst": _solve_data,
    "src": _solve_data,
    "weights": _solve_weights,
    "bias_add": _solve_bias_add,
    "bias": _solve_bias,
}


def _conv(problem: Problem) -> Conv:
    assert isinstance(problem.geometry, Conv)
    return problem.geometry


def _slice(part: range) -> slice:
    return slice(part.start, part.stop)


def _index(images: range, positions: Sequence[range]) -> tuple[slice, ...]:
    return (_slice(images), slice(None), *map(_slice, positions))


def _zeros(channels: int, block: Ranges, problem: Problem) -> Array:
    """Return zeros for the sums of one block: an (N, C, X...) view of (C, N, X...) memory."""
    images, *positions = (len(r) for r in block)
    return np.zeros((channels, images, *positions), _dtype(problem)).swapaxes(0, 1)


# -- the engine for the registry--------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumPyCall:
    """A problem and the strides of its canonical arrays."""

    problem: Problem
    strides: Strides

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute the problem from the operands at these addresses into the output at ``out``."""
        problem, shapes = self.problem, canonical_shapes(self.problem)
        names, dtypes = (*problem.operands, problem.output), [problem.operand_format.dtype] * len(operands)
        places = zip(names, (*operands, out), self.strides, (*dtypes, problem.output_format.dtype), strict=True)
        *arrays, result = [self._array(shape, *place) for shape, place in zip(shapes, places, strict=True)]
        *arrays, target = [array.reshape(shape) for array, shape in zip((*arrays, result), shapes, strict=True)]
        self.on(arrays, target)
        if not np.may_share_memory(target, result):
            result[...] = target.reshape(result.shape)

    def _array(self, shape: tuple[int, ...], name: str, address: int, strides: tuple[int, ...], dtype: Dtype) -> Array:
        """Return an array over memory. Groups are an axis of their own if the last stride is theirs."""
        if len(strides) == len(shape):
            return array_at(address, shape, strides, dtype)
        (*own, group), conv, axis = strides, self.problem.geometry, int(name != "weights")
        assert isinstance(conv, Conv), "channels have no groups"
        extents = *shape[:axis], conv.groups, shape[axis] // conv.groups, *shape[axis + 1 :]
        return array_at(address, extents, (*own[:axis], group, *own[axis:]), dtype)

    def on(self, operands: Sequence[Array], out: Array) -> None:
        """Compute the problem from arrays of any strides."""
        execute(self.problem, operands, out)

    def elsewhere(self, strides: Strides) -> NumPyCall:
        """Return the call of the same problem for arrays of other strides."""
        return NumPyCall(self.problem, strides)

    def prepare(self) -> None:
        """Do nothing, because nothing is compiled."""


class NumPyEngine:
    """The engine that computes every problem, on BLAS's threads. Blocks and BLAS determine the order of sums."""

    detail = ""

    def why_not(self, problem: Problem) -> str:
        """Return the empty string, because the engine computes every problem."""
        return ""

    def call(self, problem: Problem, strides: Strides, threads: int) -> NumPyCall:
        """Return the call of a problem for arrays of these strides. ``threads`` is ignored."""
        return NumPyCall(problem, strides)

    @in_default_environment
    def norms2(self, problem: Problem, operands: Sequence[Array], out: Array, threads: int) -> None:
        """Write the squared norm of each sample's gradient into ``out``, one sample after the other."""
        gradient = np.empty(problem.output_shape, problem.output_format.dtype)
        for sample in range(len(out)):
            sample_operands = [operand[sample : sample + 1] for operand in operands]
            execute(problem, sample_operands, gradient.transpose(problem.output_order))
            out[sample] = squares_in_order(gradient)

    @in_default_environment
    def squares(self, rows: Array) -> Array:
        """Return the squared norm of each row of a dense array."""
        return np.array([squares_in_order(row) for row in rows])

    @in_default_environment
    def scale(self, data: Array, factors: Array, out: Array, threads: int) -> None:
        """Compute out[n] = data[n] * factors[n], rounded once to the type of ``factors``."""
        with np.errstate(all="ignore"):
            np.multiply(data.astype(factors.dtype), factors.reshape(-1, *[1] * (data.ndim - 1)), out=out)

    def machine(self) -> None:
        """Return None, because the engine makes no plans."""

    def memory_bytes(self, problem: Problem, strides: Strides, threads: int) -> int:
        """Return an estimate of the bytes of a call: blocks of operands and products, and the sums of all weights."""
        geometry = problem.geometry
        sums = 0 if isinstance(geometry, Channels) else prod(geometry.weights_shape)
        return (2 * prod(_block_extents(problem)) * _channels(problem) + sums) * _dtype(problem).itemsize

    def height(self, problem: Problem) -> int:
        """Return the maximum number of roundings between a term of a sum and the result.

        The order inside a BLAS product is unknown, so each of its terms counts. Then the products of all blocks (sums
        over positions) or of all taps (sums over channels) are added.
        """
        geometry, last = problem.geometry, last_additions(problem)
        if problem.solves_for == "bias_add":
            return 1 + last
        if isinstance(geometry, Channels) or problem.solves_for == "weights":
            steps, extents = _block_extents(problem), _grid(problem)
            additions = prod(-(-extent // step) for extent, step in zip(extents, steps, strict=True)) - 1
            return last + (prod(steps) + additions if prod(extents) else 0)
        channels = geometry.src_channels if problem.solves_for == "dst" else geometry.dst_channels
        return last + channels // geometry.groups + geometry.taps - 1


NUMPY = NumPyEngine()
