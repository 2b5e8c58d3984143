"""The unfinished sums of a part of a batch. The parts can be joined to the bits of one call on the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.formats import F32, F64
from convgrad.functional.call import check_options, prepare
from convgrad.functional.sums import Computed, Sum, add, added, grown
from convgrad.parameters import described
from convgrad.plan.reach import unsupported
from convgrad.spec.check import as_integer
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.layouts import from_canonical, shape_words
from convgrad.spec.operators import OPERATORS, S64_MAX, find
from convgrad.spec.pieces import Nodes, combine, leaf_images, nodes_of
from convgrad.spec.problem import REMEMBERED, Problem, canonical_shape, intern, of_images
from convgrad.spec.rules import refuse
from convgrad.words import shown

SUMMED = ("weights", "bias")  # the tensors whose gradients are sums over the batch


@dataclass(frozen=True, eq=False, repr=False)
class Partials:
    """The unfinished sums of images ``first`` up to, not including, ``end`` of a batch.

    :func:`partials` makes it. Add two neighbouring parts with ``+``. :func:`join` returns the finished gradient.

    Args:
        operator: The name of the operator.
        geometry: The problem's geometry with a batch of 0.
        layout: The order of the gradient's axes.
        operand_type: The type of the operands, for example "f32".
        first: The number of the first image in the batch.
        images: The number of images.
        sums: Arrays of f32 of the gradient's shape, one for each item that ``spec.pieces.nodes_of`` returns for the
            part's leaves.
        sample: An empty array of the operands' library, or None for NumPy.
    """

    operator: str
    geometry: Conv | Channels
    layout: str
    operand_type: str
    first: int
    images: int
    sums: tuple[Array, ...]
    sample: object

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the gradient and of every sum."""
        return from_canonical(canonical_shape(self.geometry, find(self.operator).output.tensor), self.layout)

    @property
    def end(self) -> int:
        """The index of the image that follows the part's last image."""
        return self.first + self.images

    @property
    def leaf_images(self) -> int:
        """The number of images in a leaf of the batch's tree. A batch may be cut at multiples of this number."""
        return leaf_images(self.geometry)

    @property
    def leaves(self) -> range:
        """The leaves of the batch's tree that contain the images."""
        return range(self.first // self.leaf_images, -(-self.end // self.leaf_images))

    @property
    def ends_the_batch(self) -> bool:
        """Whether this part must be the last of its batch, because its last leaf is incomplete."""
        return self.end % self.leaf_images != 0

    @property
    def nbytes(self) -> int:
        """The size of the sums in bytes."""
        return sum(array.nbytes for array in self.sums)

    def __sizeof__(self) -> int:  # Dask workers use the size to decide when to write data to disk
        return super().__sizeof__() + self.nbytes

    @property
    def problem(self) -> dict[str, object]:
        """The values, by name, that parts must share to belong to one batch."""
        named = {"operator": self.operator, "operand_type": self.operand_type, "layout": self.layout}
        return named | {field.name: getattr(self.geometry, field.name) for field in fields(self.geometry)}

    def known(self) -> list[tuple[Nodes, Sum]]:
        """Return the checked sums in the order of the tree, each with the tree's nodes that it contains."""
        nodes = nodes_of(self.leaves.start, self.leaves.stop)
        taken = [arrays.take(array, self.operator, f"sum {n}") for n, array in enumerate(self.sums)]
        if [(array.shape, fmt) for array, fmt in taken] != [(self.shape, F32)] * len(nodes):  # P4
            got = ", ".join(f"{fmt} {shape_words(array.shape)}" for array, fmt in taken) or "none"
            whose = f"the sums of images {self.first} to before {self.end}"
            must = f"{whose} must be {len(nodes)} of f32 {shape_words(self.shape)}"
            refuse("P4", self.operator, f"{must}; got {got}")
        dense = [np.ascontiguousarray(arrays.native(array, F32)) for array, _ in taken]
        return [(node, (array,)) for node, array in zip(nodes, dense, strict=True)]

    def __add__(self, other: object) -> Partials:
        """Return the sums of two neighbouring parts. Any grouping of additions gives the same bits."""
        if not isinstance(other, Partials):
            return NotImplemented
        check_one_problem(self, other)
        if not (self.images and other.images):
            return self if self.images else other
        left, right = (self, other) if self.first <= other.first else (other, self)
        check_neighbours(left, right)
        combined = combine([*left.known(), *right.known()], add)
        return replace(left, images=left.images + right.images, sums=tuple(added(terms) for _, terms in combined))

    def __str__(self) -> str:
        which = f"images {self.first} to before {self.end}, leaves of {self.leaf_images}"
        held = f"{len(self.sums)} sum{'s' * (len(self.sums) != 1)} of {shape_words(self.shape)}"
        return f"{self.operator} {self.operand_type}, {which}: {held}, {self.nbytes / 1024:.4g} KiB"

    def __repr__(self) -> str:
        return f"<Partials: {self}>"


@described
def partials(
    operator: str, *inputs: object, first: int = 0, threads: int | None = None, **attributes: object
) -> Partials:
    """Return the unfinished sums of a weight or bias gradient over a part of a batch, for :func:`join`.

        diff_weights = sum over images n, positions p of src[n, c, i] * diff_dst[n, o, p]

    The sum is computed by a reduction tree over the batch. ``inputs`` contain images ``first``, ``first`` + 1 and so
    on of the batch. The result contains those sums of the tree that these images determine. For any cut of the batch
    into parts, :func:`join` gives the bits of the plain call on the whole batch.

    An attribute may also be one int for all axes. Cut the batch at multiples of ``explain(...).leaf_images``. A leaf is
    one image if an image has more than 256 positions, else as many whole images as have at most 256 positions together.
    The last part may end anywhere. A part may be empty.

    Args:
        first: The number of the first image of ``inputs`` in the batch. Default: 0.

    Raises:
        InvalidOpError: The operator does not sum over the batch, but computes each image separately.
        InvalidAttributeError: The batch cannot be cut at ``first``. The message names the nearest cuts.
        UnsupportedError: The NumPy engine would compute the sum in no specified order: for f64, or without kernels.
        ConvgradError: Other errors are as in :func:`run`.

    Follows oneDNN's documentation of the named operator.

    >>> import numpy as np
    >>> from convgrad import join
    >>> src, diff_dst = np.ones((20, 7, 7, 1), np.float32), np.ones((20, 7, 7, 2), np.float32)
    >>> layer = {"weights_shape": (1, 1, 1, 2), "strides": 1, "dilations": 1}
    >>> one = partials("ConvolutionBackwardWeights", src[:15], diff_dst[:15], **layer)
    >>> two = partials("ConvolutionBackwardWeights", src[15:], diff_dst[15:], first=15, **layer)
    >>> one
    <Partials: ConvolutionBackwardWeights f32, images 0 to before 15, leaves of 5: 1 sum of 1x1x1x2, 0.007812 KiB>
    >>> join([two, one]).ravel().tolist()
    [980.0, 980.0]
    """
    check_options(operator, None, False, threads)
    if find(operator).solves_for not in SUMMED:  # P1
        names = ", ".join(dict.fromkeys(op.name for op in OPERATORS if op.solves_for in SUMMED))
        refuse("P1", operator, f"the operator must sum over the batch, as {names}; it computes each image separately")
    prepared = prepare(operator, inputs, attributes, F32, lenient=True)
    problem, operands = prepared.problem, prepared.operands
    check_order(problem)
    sample = None if type(inputs[0]) is np.ndarray else libraries.like(inputs[0])(np.empty(0, np.float32))
    return partials_of(problem, operands, _checked_first(problem, first), threads, sample)


def partials_of(
    problem: Problem,
    operands: Sequence[Array],
    first: int,
    threads: int | None = None,
    sample: object = None,
    before: Partials | None = None,
) -> Partials:
    """Return the unfinished sums of a problem whose images are a part of a batch, from image ``first`` on.

    The operands are canonical, ``first`` is the first image of a leaf, and the engine must have a specified order of
    sums. If the part ``before`` is given, return the sums of both parts. The new sums are added to copies of the sums
    of ``before``, which needs fewer arrays than adding two Partials.
    """
    images, per_leaf = problem.geometry.batch, leaf_images(problem.geometry)
    grown_part = as_partials(problem, first, images, (), sample)
    if before is not None and before.images:
        check_one_problem(before, grown_part)
        check_neighbours(before, grown_part)
        grown_part = replace(before, images=before.images + images)

    def computed(leaves: range) -> Computed:
        begin, end = leaves.start * per_leaf - first, min(leaves.stop * per_leaf - first, images)
        part, part_operands = of_images(problem, end - begin), [operand[begin:end] for operand in operands]
        return lambda total: sum_of(part, part_operands, threads, total)

    nodes = nodes_of(first // per_leaf, -(-(first + images) // per_leaf))
    known = before.known() if before is not None else []
    return replace(grown_part, sums=grown(known, ((node, computed(node.leaves)) for node in nodes)))


def sum_of(
    problem: Problem, operands: Sequence[Array], threads: int | None = None, total: Array | None = None
) -> Array:
    """Compute a problem in f32 on canonical operands. Return a new array, or ``total`` with the result added."""
    array = arrays.empty(problem.output_shape, F32.dtype) if total is None else total
    unrounded = _unrounded(problem, total is not None)
    engines.execute(unrounded, operands, array.transpose(problem.output_order), threads)
    return array


@lru_cache(maxsize=REMEMBERED)
def _unrounded(problem: Problem, accumulate: bool) -> Problem:
    return intern(replace(problem, output_format=F32, accumulate=accumulate))


def as_partials(problem: Problem, first: int, images: int, sums: tuple[Array, ...], sample: object = None) -> Partials:
    """Return the Partials with these sums over images of a problem's batch."""
    return Partials(
        problem.operator,
        of_images(problem, 0).geometry,
        problem.layouts[-1],
        problem.operand_format.name,
        first,
        images,
        sums,
        sample,
    )


def check_order(problem: Problem) -> None:
    """Check, by rule P2, that the sums have a specified order. A bias addition passes, because it has no sums."""
    if problem.solves_for == "bias_add":
        return
    if problem.operand_format is F64:  # P2
        refuse(
            "P2", problem.operator, "f64 arrays cannot be computed in pieces. Use f32 arrays, or a call on whole arrays"
        )
    if missing := why_no_order(problem):  # P2
        order = "sums in pieces must have an order, but the NumPy engine, which computes them, has none"
        refuse("P2", problem.operator, f"{order}; got {missing}")


def why_no_order(problem: Problem) -> str:
    """Return the name of the engine if it computes the sum over the batch in no specified order; else ""."""
    choice = engines.choose(problem)
    by_numpy = problem.operand_format is F64 or (not choice.has_order and not unsupported(problem))
    return str(choice) if by_numpy else ""


def _checked_first(problem: Problem, first: object) -> int:
    """Return ``first`` as an int if a part may begin at this image; else raise by rule P3."""
    number, per_leaf = as_integer(first), leaf_images(problem.geometry)
    if number is None or not 0 <= number <= S64_MAX or number % per_leaf:  # P3
        must = f"first, the first image of the piece, must be a multiple of {per_leaf}, the images of a leaf"
        refuse("P3", problem.operator, f"{must}; got {shown(first)}{near(number, per_leaf)}")
    return number


def near(image: int | None, per_leaf: int) -> str:
    """Return a hint that names the nearest images before and after ``image`` at which a part may begin."""
    if image is None or not 0 <= image < S64_MAX - per_leaf:
        return ""
    leaf = image // per_leaf
    return f". Use {leaf * per_leaf} or {(leaf + 1) * per_leaf}"


def check_one_problem(part: Partials, other: Partials) -> None:
    """Check, by rule P4, that two parts have the same problem except for their images."""
    ours, theirs = part.problem, other.problem
    if ours != theirs:  # P4
        name = next(name for name, value in ours.items() if theirs.get(name) != value)
        must = "parts must be of one problem, except for their numbers of images"
        refuse("P4", part.operator, f"{must}; got {name} {ours[name]} and {theirs[name]}")


def check_neighbours(left: Partials, right: Partials) -> None:
    """Check, by rule P5, that the part ``right`` begins at the end of ``left``. The parts must not be empty."""
    if right.first != left.end:  # P5
        wrong = f"images {left.end} to before {right.first} are missing"
        if right.first < left.end:
            wrong = f"images {right.first} to before {min(left.end, right.end)} are of two parts"
        inside = f"; {left.end} is inside a leaf{near(left.end, left.leaf_images)}" * left.ends_the_batch
        refuse("P5", left.operator, f"a part must begin where the part before it ends; {wrong}{inside}")
