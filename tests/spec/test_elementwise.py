"""Elementwise functions, and sums per channel: underflow, the tree that combines sections, and heights of the order."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad.spec.chains import tree
from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.maps import ELEMENTS
from convgrad.spec.elementwise.sums import height, section_sums, sections_of, totals


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300])
def test_sections_are_joined_by_the_tree(count: int) -> None:
    sums = np.random.default_rng(0).standard_normal((2, count, 3))
    assert totals(sums).tolist() == tree([sums[:, number] for number in range(count)]).tolist()


def test_images_have_sums_of_their_own() -> None:
    values = np.random.default_rng(1).standard_normal((3, 2, 2500)).astype(np.float32)
    sections = sections_of(3, 2500, combined=False)
    found = totals(section_sums(values, None, sections).reshape(3, sections.sections, 2))
    for image in range(3):
        own = values[image : image + 1]
        assert found[image].tolist() == totals(section_sums(own, None, sections_of(1, 2500))).tolist()


@pytest.mark.parametrize(
    ("images", "positions", "expected"),
    [(1, 1, 1 + 4), (1, 16, 1 + 4), (1, 17, 2 + 4), (2, 1024, 64 + 4 + 1), (2, 1025, 64 + 4 + 3), (5, 100, 7 * 5 + 4)],
)
def test_heights(images: int, positions: int, expected: int) -> None:
    assert height(images, positions) == expected


def test_order_of_additions() -> None:
    """Chains 0 and 8 are added before the others: a number that a sum of 1 loses is still there."""
    values = np.zeros((1, 1, 16), np.float32)
    values[0, 0, [0, 1, 8]] = 2.0**60, 1.0, -(2.0**60)
    assert section_sums(values, None, sections_of(1, 16))[0, 0] == 1.0
    values[0, 0, [8, 15]] = 0.0, -(2.0**60)
    assert section_sums(values, None, sections_of(1, 16))[0, 0] == 0.0


@pytest.mark.parametrize("name", [name for name, a_map in ELEMENTS.items() if len(a_map.operands) <= 2])
def test_only_results_near_the_smallest_numbers_underflow(name: str) -> None:
    """An operation that underflows is slow on some processors, for example in rows of softmax with -infinity."""
    sizes = np.float32([0, 1e-3, 2, 5, 8, 20, 40, 60, 80, 120, 1000, 1e10, 1e30, np.inf])
    factors = [np.float32([1.5])] * (len(ELEMENTS[name].operands) - 1)
    for x in sizes[2:] if name == "exp_of_difference" else (*sizes, *-sizes):  # of x and a number that is not smaller
        with np.errstate(all="ignore", under="raise"):
            ELEMENTS[name].definition(NumpyOperations(), *factors, x[None])
