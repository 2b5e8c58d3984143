"""The table of all statistics of a judgement, with their thresholds and the reasons for these.

N is the number of independent elements, L the number in a group, G the number of groups. If sums share products, I is
the mean number of elements that have one common error. Then N / I replaces N, L / I replaces L, and mismatches and
coarse results occur in groups of I.

| statistic     | threshold                          | why                                                            |
|---------------|------------------------------------|----------------------------------------------------------------|
| R, rms of z   | 1.3 (1 + 6 / sqrt N)               | at most 1 by the model; small samples have a heavy tail         |
| R of a group  | 1.3 (1 + 14 / sqrt L)              | the same, the largest of many                                   |
| max of z      | 2 + 0.6 ln(N / 1e-5)               | an error's tail is exp(-1.28 z): partial sums are a random walk |
| bias, slope,  | t = 5.5                            | self-normalised: 2 exp(-t^2 / 2), whatever the order            |
| mean          |                                    |                                                                 |
| of a group    | t = sqrt(2 ln(4 G / 1e-5)) + 1     | the same, the largest of many                                   |
| mismatches    | 1.2 M + 6 sqrt M + 10              | Poisson with mean M at R = 1.3; narrow outputs only             |
| coarse grids  | 1.5 C + 6 sqrt C + 8               | cancellation alone makes C results coarse                       |
| filters       | t = 6, coefficient 0.25            | self-normalised                                                 |
"""

from __future__ import annotations

from collections.abc import Callable

from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.statistics.bias import bias, mean, slope
from convgrad.verify.judge.statistics.filters import matched_filters
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.judge.statistics.grid import coarse_grids
from convgrad.verify.judge.statistics.groups import leanings, sizes
from convgrad.verify.judge.statistics.narrow import mismatches
from convgrad.verify.judge.statistics.size import largest, root_mean_square

# These two statistics apply to any algorithm whose errors are at most those of a sum.
SIZES: tuple[Callable[[Errors], Finding], ...] = (root_mean_square, largest)
STATISTICS: tuple[Callable[[Errors], Finding], ...] = (
    *SIZES,
    matched_filters,
    coarse_grids,
    mismatches,
    bias,
    slope,
    mean,
    sizes,
    leanings,
)
