"""Every small 1-D problem against a definition written here, in plain Python, with nothing of the library's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

import convgrad
from tests.support.tiers import tiers


def problems() -> Iterator[tuple[int, ...]]:
    """(extent, kernel, stride, dilation, pad_begin, pad_end), all of them."""
    return product(range(1, 13), range(1, 6), range(1, 6), range(1, 4), range(5), range(5))


def values(count: int, multiplier: int) -> list[int]:
    return [(multiplier * n * n + n) % 7 - 3 for n in range(count)]


def as_array(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.float32).reshape(1, -1, 1)


def meetings(large: int, small: int, k: int, s: int, d: int, begin: int) -> Iterator[tuple[int, int, int]]:
    """All (i, p, tap) with i = p*s + tap*d - begin and 0 <= i < large."""
    for p in range(small):
        for tap in range(k):
            i = p * s + tap * d - begin
            if 0 <= i < large:
                yield i, p, tap


def solve(met: list[tuple[int, int, int]], which: int, length: int, left: list[int], right: list[int]) -> list[int]:
    """Sum left * right over all meetings into index ``which`` of (i, p, tap); they are the other two, in order."""
    sums = [0] * length
    first, second = (n for n in range(3) if n != which)
    for meeting in met:
        sums[meeting[which]] += left[meeting[first]] * right[meeting[second]]
    return sums


def check(problem: tuple[int, ...]) -> int:
    """Check one problem in all roles, plain and transposed; return the number of results compared."""
    extent, k, s, d, begin, end = problem
    options = {"strides": s, "dilations": d, "pads_begin": begin, "pads_end": end}
    e = d * (k - 1) + 1
    compared = 0
    w, weights = values(k, 2), np.array(values(k, 2), np.float32).reshape(k, 1, 1)
    small = (extent + begin + end - e) // s + 1
    if small >= 1:  # extent is the large side of a plain convolution
        x, dy = values(extent, 3), values(small, 5)
        met = list(meetings(extent, small, k, s, d, begin))
        y = convgrad.convolution(as_array(x), weights, **options)
        dx = convgrad.convolution_backward_data(as_array(dy), weights, (1, extent, 1), **options)
        dw = convgrad.convolution_backward_weights(as_array(x), as_array(dy), (k, 1, 1), **options)
        assert y.ravel().tolist() == solve(met, 1, small, x, w), problem
        assert dx.ravel().tolist() == solve(met, 0, extent, dy, w), problem
        assert dw.ravel().tolist() == solve(met, 2, k, x, dy), problem
        compared += 3
    for op in {0, max(s, d) - 1}:  # extent is the small side of a transposed convolution
        large = s * (extent - 1) + e - begin - end + op
        if large < 1:
            continue
        x, dy = values(extent, 3), values(large, 5)
        met = list(meetings(large, extent, k, s, d, begin))
        y = convgrad.conv_transpose(as_array(x), weights, **options, output_padding=op)
        dx = convgrad.conv_transpose_backward_data(as_array(dy), weights, **options, output_padding=op)
        dw = convgrad.conv_transpose_backward_weights(as_array(x), as_array(dy), (k, 1, 1), **options)
        assert y.ravel().tolist() == solve(met, 0, large, x, w), problem
        assert dx.ravel().tolist() == solve(met, 1, extent, dy, w), problem
        assert dw.ravel().tolist() == solve(met, 2, k, dy, x), problem
        compared += 3
    return compared


@tiers("extent", range(1, 13), every=11)
@pytest.mark.parametrize("every", [101, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_every_problem(extent: int, every: int) -> None:
    """All in the long tier; of each extent every 101st before, which is prime to every attribute's values."""
    mine = [p for p in problems() if p[0] == extent]
    assert len(mine) == 1875
    mine = mine[extent % every :: every]
    assert sum(map(check, mine)) > 5 * len(mine)
