"""A wrong result with all known facts about it, and the sums that a defect would have computed instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.cached import cached_property
from convgrad.formats import Format
from convgrad.spec import exact_result
from convgrad.spec.exact_result import Answer
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem
from convgrad.verify.reference import Reference
from convgrad.verify.terms import terms_of

Where = NDArray[np.intp]  # flat indices of a canonical result

SAMPLED, FEW = 128, 16  # numbers of wrong elements, and of right elements, in ``many`` and ``few``


@dataclass(frozen=True, eq=False)
class Scene:
    """A wrong result and all known facts about it, as canonical arrays.

    ``old`` has the previous contents of the result, which may be known even if the problem does not add to them.
    """

    got: Array
    beyond: NDArray[np.bool_]
    reference: Reference
    problem: Problem
    operands: Sequence[Array]
    old: Array | None
    accumulator: Format

    @cached_property
    def tensors(self) -> dict[str, Array]:
        """The operands by the name of their tensor."""
        return dict(zip(self.problem.operands, self.operands, strict=True))

    def of_worst_group(self) -> Scene:
        """Return the scene of the group with the most wrong elements, for a weight gradient."""
        conv = self.conv
        assert conv is not None
        at = int(np.argmax(self.beyond.reshape(conv.groups, -1).sum(axis=1)))
        inner, outer = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
        reads = {"src": slice(at * inner, (at + 1) * inner), "dst": slice(at * outer, (at + 1) * outer)}
        dst, geometry = reads["dst"], replace(conv, groups=1, src_channels=inner, dst_channels=outer)
        return Scene(
            self.got[dst],
            self.beyond[dst],
            self.reference.at(dst),
            replace(self.problem, geometry=geometry),
            [np.ascontiguousarray(array[:, reads[tensor]]) for tensor, array in self.tensors.items()],
            None if self.old is None else self.old[dst],
            self.accumulator,
        )

    def said(self, tensor: str) -> str:
        """Return the operator's name for an operand, such as diff_dst."""
        return next(port.name for port in find(self.problem.operator).operands if port.tensor == tensor)

    @cached_property
    def conv(self) -> Conv | None:
        """The geometry of the convolution, or None if the problem has none."""
        return self.problem.geometry if isinstance(self.problem.geometry, Conv) else None

    @cached_property
    def actual(self) -> F64Array:
        """The result as a flat float64 array."""
        return np.ascontiguousarray(self.got, np.float64).ravel()

    @cached_property
    def exact(self) -> Answer:
        """The exact sums of the right result."""
        reference = self.reference
        return Answer(reference.value, reference.magnitude, reference.terms, reference.integral)

    @cached_property
    def wrong(self) -> Where:
        """The flat indices of the wrong elements."""
        return np.flatnonzero(self.beyond)

    @cached_property
    def few(self) -> Where:
        """Flat indices of a few wrong elements, then of a few right ones, at which most explanations fail."""
        return np.concatenate([spread(self.wrong, FEW), spread(np.flatnonzero(~self.beyond), FEW)])

    @cached_property
    def many(self) -> Where:
        """Flat indices of many wrong elements, then of many right ones."""
        return np.concatenate([spread(self.wrong, SAMPLED), spread(np.flatnonzero(~self.beyond), SAMPLED)])


def spread(where: Where, count: int) -> Where:
    """Return ``count`` of these indices, or all if there are fewer."""
    if where.size <= count:
        return where
    picked: Where = where[
        np.random.default_rng(0).choice(where.size, count, replace=False)
    ]  # random, because regular steps may miss a periodic pattern
    return picked


class DefectSums(Protocol):
    """The sums that a defect would have computed, for some output elements or for all."""

    @property
    def work(self) -> int:
        """The number of multiply-adds of all sums."""

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""

    def whole(self) -> Answer:
        """Return the sums of all elements in canonical shape."""


@dataclass(frozen=True, eq=False)
class Instead:
    """The sums of another problem with the same output shape; callable ``operands`` make copies on demand."""

    problem: Problem
    operands: tuple[Array, ...] | Callable[[], tuple[Array, ...]]
    shape: tuple[int, ...]
    old: Array | None = None

    @property
    def work(self) -> int:
        """The number of multiply-adds of all sums."""
        geometry = self.problem.geometry
        return geometry.multiply_adds if isinstance(geometry, Conv) else 0

    def at(self, where: Where, last: Sequence[int] = ()) -> Answer:
        """Return flat sums of the elements at these flat indices, computed product by product.

        Along the axes ``last`` of ``terms_of``, only the last term counts.
        """
        operands, rows, integral = self._arrays(), np.zeros((3, where.size)), True
        for at, index in enumerate(zip(*np.unravel_index(where, self.shape), strict=True)):
            terms = terms_of(self.problem, operands, tuple(int(i) for i in index), self.old)
            counted = terms.products[tuple(slice(-1 if axis in last else None, None) for axis in range(terms.x.ndim))]
            products = np.append(counted, terms.added)
            finite = products[np.isfinite(products)]
            rows[:, at] = products.sum(), np.abs(finite).sum(), counted.size
            integral = integral and bool((finite == np.rint(finite)).all())
        return Answer(rows[0], rows[1], rows[2].astype(np.int64), integral)

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return exact_result.evaluate(self.problem, self._arrays(), self.old)

    def _arrays(self) -> tuple[Array, ...]:
        return self.operands() if callable(self.operands) else self.operands


@dataclass(frozen=True, eq=False)
class LastTerms:
    """The sums of the terms of ``of`` that are the last along some axes; ``axes`` are those of ``terms_of``."""

    of: Instead
    axes: tuple[int, ...]

    @property
    def work(self) -> int:
        """The number of multiply-adds that take as long as all sums, which are computed one by one."""
        return prod(self.of.shape) << 12

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""
        return self.of.at(where, self.axes)

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return self.at(np.arange(prod(self.of.shape)))


@dataclass(frozen=True, eq=False)
class Picked:
    """The exact sums, moved to other elements: ``places`` returns the flat index of each element's sum, or -1 for 0."""

    exact: Answer
    places: Callable[[], Where]
    work: int = 0

    @cached_property
    def _places(self) -> Where:
        return np.ascontiguousarray(self.places()).ravel()

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""
        return self._of(self._places[where])

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return self._of(self._places)

    def _of(self, places: Where) -> Answer:
        is_picked, exact = places >= 0, self.exact
        value, magnitude = (np.where(is_picked, array.ravel()[places], 0.0) for array in (exact.value, exact.magnitude))
        return Answer(value, magnitude, np.where(is_picked, exact.terms.ravel()[places], 0), exact.integral)


@dataclass(frozen=True, eq=False)
class Changed:
    """The exact sums, each changed by ``change``, which takes flat sums, their magnitudes and their flat indices."""

    exact: Answer
    change: Callable[[F64Array, F64Array, Where], tuple[F64Array, F64Array]]
    integral: bool = False
    work: int = 0

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""
        exact = self.exact
        value, magnitude = self.change(exact.value.ravel()[where], exact.magnitude.ravel()[where], where)
        return Answer(value, magnitude, exact.terms.ravel()[where], self.integral and exact.integral)

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return self.at(np.arange(self.exact.value.size))
