"""Operands with which one output element of each channel sums freely chosen terms.

One operand, the **carrier**, has the values of the terms, channel by channel. The other operand has random signs, and
the carrier's values are multiplied by the same signs. So products are exactly the chosen terms, but an algorithm that
adds operands before it multiplies, such as Winograd, is detected. A **column** is a channel of the carrier with its one
observed output element. The element's terms are numbered in the order of the specification: images and positions of a
weight or bias gradient, taps and channels of a forward or a data gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.errors import UnsupportedError
from convgrad.formats import Format
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.verify.terms import Index, terms_of

Int = NDArray[np.int64]

# By the operands' format: the value of a term, and that of a mask, the large number M.
# A mask hides any number of terms in f32 and f64 sums. But an f16 mask hides 2^14 terms in f32 sums and none in f64.
# No number of an 8-bit format hides any term.
VALUES: Mapping[str, tuple[float, float]] = {
    "f32": (1.0, 2.0**100),
    "bf16": (1.0, 2.0**100),
    "f16": (2.0**-24, 2.0**15),
    "f64": (1.0, 2.0**800),
}


@dataclass(frozen=True, eq=False)
class Masks:
    """The columns of a problem: the flat indices of their terms in the carrier, and the elements that sum these terms.

    The indices of a column's terms are ``first`` of this column plus ``terms``. ``signs`` are the other operand's
    values, and ``signed`` the signs of the terms. A bias gradient has only one operand.
    """

    problem: Problem
    carrier: Tensor
    elements: tuple[Index, ...]
    first: Int
    terms: Int
    signs: Array
    signed: Array

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.elements)

    @property
    def values(self) -> tuple[float, float]:
        """The value of a term and the value of a mask."""
        return VALUES[self.problem.operand_format.name]

    def operands(self, columns: Int, values: Array) -> tuple[Array, ...]:
        """Return operands in the caller's layouts, for which each of ``columns`` sums its row of ``values``.

        The other columns sum zeros.
        """
        dtype = self.problem.operand_format.dtype
        laid_out = []
        for tensor, order in zip(self.problem.operands, self.problem.operand_orders, strict=True):
            shape = _shape(self.problem, tensor)
            canonical = np.zeros(shape, dtype)
            if tensor == self.carrier:
                canonical.reshape(-1)[self.first[columns, None] + self.terms] = (values * self.signed).astype(dtype)
            elif tensor != "bias":
                canonical[...] = self.signs
            inverse = np.argsort(order)
            operand = arrays.empty(tuple(shape[a] for a in inverse), dtype)
            operand[...] = canonical.transpose(inverse)
            laid_out.append(operand)
        return tuple(laid_out)


def masks_of(problem: Problem) -> Masks:
    """Return the columns of a problem, for the carrier with the most channels and the elements with the most terms.

    Raises UnsupportedError if a problem has no sums.

    >>> from convgrad.notation import problem
    >>> masks = masks_of(problem("BWD_W f32 NXC mb2ic4iw8oc6ow8kw3pw1"))
    >>> masks.carrier, masks.columns, masks.elements[0], masks.terms.size
    ('dst', 6, (0, 0, 1), 16)
    """
    geometry = problem.geometry
    if problem.solves_for == "bias_add" or 0 in canonical_shape(geometry, problem.output):
        raise UnsupportedError(f"{problem.operator}: a probe needs sums of products; this problem has none")
    if isinstance(geometry, Channels):
        choices = [_masks(problem, "dst", [(c,) for c in range(geometry.channels)])]
    else:
        choices = [_masks(problem, carrier, elements) for carrier, elements in _ELEMENTS[problem.solves_for](geometry)]
    best = max(choices, key=lambda masks: masks.columns)
    if best.terms.size == 0:
        raise UnsupportedError(f"{problem.operator}: a probe needs sums of products; this problem's have no terms")
    return best


def _masks(problem: Problem, carrier: Tensor, elements: list[Index]) -> Masks:
    labels = np.arange(prod(_shape(problem, carrier)), dtype=np.float64).reshape(_shape(problem, carrier))
    blank: dict[Tensor, Array] = {t: np.broadcast_to(np.float64(0), _shape(problem, t)) for t in problem.operands}
    blank[carrier] = labels
    signs = np.ones(1)
    for other in set(problem.operands) - {carrier, "bias"}:
        signs = blank[other] = _signs(problem, other)
    first, place, signed = [], np.zeros(0, np.int64), np.ones(0)
    for element in elements:
        terms = terms_of(problem, [blank[t] for t in problem.operands], element)
        both = [terms.x, terms.y]
        if problem.solves_for in ("dst", "src"):  # channels come last in the order of sums
            both = [np.moveaxis(values, 0, -1) for values in both]
        mine = 0 if problem.solves_for == "bias" or (carrier, problem.solves_for) == ("src", "weights") else 1
        place, signed = both[mine].ravel().astype(np.int64), both[1 - mine].ravel()
        first.append(place[:1].sum())
    return Masks(problem, carrier, tuple(elements), np.array(first), place - first[-1], signs, signed)


def _signs(problem: Problem, tensor: Tensor) -> Array:
    """Return signs for a data tensor, equal in every group, so that all columns have the same signs."""
    batch, channels, *extents = _shape(problem, tensor)
    groups = problem.geometry.groups if isinstance(problem.geometry, Conv) else 1
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (batch, channels // groups, *extents))
    return np.tile(signs, (1, groups, *(1 for _ in extents)))


def _shape(problem: Problem, tensor: Tensor) -> tuple[int, ...]:
    """Return the canonical shape of an operand."""
    if tensor == "bias":
        return (canonical_shape(problem.geometry, problem.output)[1],)
    return canonical_shape(problem.geometry, tensor)


def _product_indices(axis: Axis) -> tuple[Int, Int, Int]:
    """Return the taps, dst positions and src positions of all products along an axis."""
    k, p = (index.ravel() for index in np.indices((axis.kernel, axis.dst)))
    i = p * axis.stride + k * axis.dilation - axis.pad_begin
    exists = (i >= 0) & (i < axis.src)
    return k[exists], p[exists], i[exists]


def _middle(indices: Int, extent: int) -> int:
    """Return the most frequent index, or the middle one if several are equally frequent."""
    count = np.bincount(indices, minlength=extent)
    maximum = np.flatnonzero(count == count.max())
    return int(maximum[maximum.size // 2])


def _of_weights(conv: Conv) -> list[tuple[Tensor, list[Index]]]:
    tap = tuple(_middle(_product_indices(a)[0], a.kernel) for a in conv.axes)
    sources, results = (channels // conv.groups for channels in (conv.src_channels, conv.dst_channels))
    return [
        ("dst", [(o, 0, *tap) for o in range(conv.dst_channels)]),
        ("src", [(c // sources * results, c % sources, *tap) for c in range(conv.src_channels)]),
    ]


def _of_dst(conv: Conv) -> list[tuple[Tensor, list[Index]]]:
    position = tuple(_middle(_product_indices(a)[1], a.dst) for a in conv.axes)
    return [("weights", [(0, o, *position) for o in range(conv.dst_channels)])]


def _of_src(conv: Conv) -> list[tuple[Tensor, list[Index]]]:
    position = tuple(_middle(_product_indices(a)[2], a.src) for a in conv.axes)
    return [("weights", [(0, c, *position) for c in range(conv.src_channels)])]


_ELEMENTS: Mapping[str, Callable[[Conv], list[tuple[Tensor, list[Index]]]]] = {
    "weights": _of_weights,
    "dst": _of_dst,
    "src": _of_src,
}


def masked_by(fmt: Format) -> str:
    """Return the ratio of a mask to a term in words.

    >>> from convgrad.formats import F16
    >>> masked_by(F16)
    '2^39 terms'
    """
    term, mask = VALUES[fmt.name]
    return f"2^{int(np.log2(mask / term))} terms"
