"""The axes along which a GPU's threads load operands and store results, and the lengths of their vectors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from convgrad.plan.cuda.nest import Product
from convgrad.plan.cuda.recipe import COLUMNS, ROWS, TERMS
from convgrad.plan.cuda.tables import ABSENT, TERM_WORDS, Int32, Leaves
from convgrad.plan.tables import Ints
from convgrad.spec.problem import Problem

WIDTH = 4  # elements of a vector
OF_A, OF_B = 0, 1  # columns of a table of terms


def are_aligned(problem: Problem, addresses: Iterable[int]) -> bool:
    """Return whether the addresses of a call's arrays are aligned, as ``plan`` defines it."""
    size = WIDTH * max(problem.operand_format.itemsize, problem.output_format.itemsize)
    return not any(address % size for address in addresses)


def along_of(product: Product, other: str) -> str:
    """Return the index of an operand with the smaller stride: terms, or rows of A or columns of B."""
    terms = product.terms.a if other == ROWS else product.terms.b
    step = abs(product.columns.a) if other == COLUMNS else abs(product.innermost.a)
    return TERMS if 0 < _typical(terms) < step else other


def _typical(offsets: Ints) -> int:
    """Return the median distance of neighbouring terms."""
    return int(np.median(np.abs(np.diff(offsets)))) if len(offsets) > 1 else 0


def width_of_a(product: Product, leaves: Leaves, along: str) -> int:
    """Return how many neighbouring elements of A a thread can load at once, if addresses are aligned."""
    outer = [loop.a for loop in product.real_loops if along == TERMS or loop is not product.innermost]
    steps = [*outer, *_steps(product, 0)]
    if along == TERMS:
        fits = _neighbours(product, leaves, OF_A)
    else:
        inner = product.innermost
        whole = inner.step == 0 or (product.checked == 0 and len(product.terms) > 0)  # all of a vector exist, or none
        fits = whole and inner.a == 1 and inner.extent % WIDTH == 0 and not (product.terms.a % WIDTH).any()
    return WIDTH if fits and not any(step % WIDTH for step in steps) else 1


def width_of_b(product: Product, leaves: Leaves, along: str) -> int:
    """Return how many neighbouring elements of B a thread can load at once, if addresses are aligned."""
    columns, steps = product.columns, _steps(product, 1)
    if along == TERMS:
        steps.append(columns.a)
        fits = _neighbours(product, leaves, OF_B)
    else:
        fits = columns.a == 1 and columns.extent % WIDTH == 0 and not (product.terms.b % WIDTH).any()
    return WIDTH if fits and not any(step % WIDTH for step in steps) else 1


def _steps(product: Product, operand: int) -> list[int]:
    """Return the steps of an operand from a group and from a repeated unit to the next."""
    group = [product.group_steps[operand]] if product.groups > 1 else []
    return group + ([product.repeat_steps[operand]] if product.repeats > 1 else [])


def _neighbours(product: Product, leaves: Leaves, column: int) -> bool:
    """Return whether the terms of each vector have neighbouring elements of A or B, by the column of their offsets.

    Elements of A must exist together. All elements of B exist.
    """
    terms = _vectors(leaves)
    if terms is None:
        return False
    firsts = terms[:, :1]
    dense = bool((terms[:, :, column] - firsts[:, :, column] == np.arange(WIDTH)).all())
    together = column == OF_B or _together(product, leaves, terms)
    return together and dense and not (firsts[:, :, column] % WIDTH).any()


def _vectors(leaves: Leaves) -> Int32 | None:
    """Return the vectors of terms; None if there are no terms, or some vector has both terms and absent terms."""
    terms = leaves.real_terms.reshape(-1, WIDTH, TERM_WORDS)
    exist = terms[:, :, 2] != ABSENT
    return terms[exist[:, 0]] if exist.any() and (exist == exist[:, :1]).all() else None


def _together(product: Product, leaves: Leaves, terms: Int32) -> bool:
    """Return whether the elements of A for the terms of a vector exist together.

    For a vector of absent terms, kernels load the elements at the same distances from the first element of A. These
    elements exist if the vector has one position, or if the first term has the first element.
    """
    if (terms[:, :, 2:] == terms[:, :1, 2:]).all():
        return True
    return product.checked == 0 and not (leaves.padded and product.terms.a[0])


def term_step(product: Product, leaves: Leaves) -> int:
    """Return the distance in A between neighbouring terms of all vectors, or 0 if distances or existence differ."""
    terms = _vectors(leaves)
    if terms is None:
        return 0
    steps = np.diff(terms[:, :, 0], axis=1)
    return int(steps[0, 0]) if _together(product, leaves, terms) and (steps == steps[0, 0]).all() else 0


def along_of_c(product: Product) -> str:
    """Return the index of C along which neighbouring results are closer in memory."""
    across = abs(product.columns.c) if product.columns.extent > 1 else abs(product.group_steps[2])
    return ROWS if 0 < abs(product.innermost.c) < across else COLUMNS


def width_of_partials(product: Product, along: str) -> int:
    """Return how many neighbouring partial sums a thread can store at once."""
    extent = product.rows if along == ROWS else product.columns.extent
    return 1 if extent % WIDTH else WIDTH


def width_of_c(product: Product, along: str) -> int:
    """Return how many neighbouring results a thread can store at once, if addresses are aligned."""
    group = [product.group_steps[2]] if product.groups > 1 else []
    inner, columns = product.innermost, product.columns
    outer = [loop.c for loop in product.real_loops if along == COLUMNS or loop is not inner]
    axis = inner if along == ROWS else columns
    steps = [product.first, *outer, *group, *([columns.c] if along == ROWS and columns.extent > 1 else [])]
    fits = axis.c == 1 and axis.extent % WIDTH == 0
    return WIDTH if fits and not any(step % WIDTH for step in steps) else 1
