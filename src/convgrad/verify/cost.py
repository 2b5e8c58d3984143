"""The time that the exact sums and the statistics of a verdict take, and the sample that makes a long verdict short.

The choice of a sample does not depend on the machine: it is by the time on a nominal core. For estimates that are
printed, the speed of matrix products is measured.
"""

from __future__ import annotations

import time
from functools import cache
from math import prod

import numpy as np

from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.work import needed_flops
from convgrad.verify.parts import SampleWish, is_sampled

BLAS_S, PRODUCT_S = 0.15e-9, 0.25e-9  # seconds per product: of matrix products, and of other work
GATHERED_S, ELEMENT_S = 8e-9, 3e-6  # seconds per gathered number, and per output element
LONG_S = 30.0  # verdicts that take longer are on samples by default
SHORT_S = 8.0  # the time of the exact sums of these samples
SMALLEST = 1 << 14  # minimum number of elements of these samples


def cost_s(problem: Problem, sample: SampleWish | None = None, blas_s: float = BLAS_S) -> float:
    """Return the seconds that a verdict takes, without the call of the judged function.

    >>> from convgrad.notation import problem
    >>> large = problem("BWD_W f32 NXC mb2ic64id32ih64iw64oc64od32oh64ow64kd3kh3kw3pd1ph1pw1")
    >>> cost_s(large) > 15 > cost_s(large, SampleWish(1000))
    True
    """
    conv, shape = problem.geometry, canonical_shape(problem.geometry, problem.output)
    elements = prod(shape)
    share = sample.elements / elements if sample is not None and is_sampled(problem, sample) else 1.0
    if not isinstance(conv, Conv):
        return ELEMENT_S * elements * share
    products = needed_flops(conv) // 2
    if problem.solves_for == "weights":  # a sample gathers all channels too
        gathered = products * (1 / conv.dst_channels + 1 / conv.src_channels) * conv.groups
    else:
        gathered = share * products / (shape[1] / conv.groups)
    return share * ((blas_s + PRODUCT_S) * products + ELEMENT_S * elements) + GATHERED_S * gathered


def default_sample(problem: Problem, seed: int) -> SampleWish | None:
    """Return the sample for a verdict that would take long, or None."""
    whole_s = cost_s(problem)
    if whole_s <= LONG_S:
        return None
    elements = prod(canonical_shape(problem.geometry, problem.output))
    return SampleWish(max(SMALLEST, int(elements * SHORT_S / whole_s)), seed)


@cache
def measured_blas_s() -> float:
    """Return the present time of the matrix products of a sum, in seconds per product; this takes about 30 ms.

    The machine may be busy, or the number of threads of NumPy's BLAS may be larger than its number of free cores.
    """
    x, y = np.ones((512, 2048)), np.ones((2048, 64))  # smaller products mostly measure how threads wait for a core
    times = []
    for _ in range(3):  # the first product starts threads
        began = time.perf_counter()
        _ = x @ y
        times.append(time.perf_counter() - began)
    return min(times) * 3 / (x.size * 64)
