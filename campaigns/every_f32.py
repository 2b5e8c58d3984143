"""Every f32 number in every elementary function: the largest error in units of the last place, against float64.

``python -m campaigns every_f32 > benchmarks/results/every_f32.csv`` takes about half an hour. ``--every 97`` tries one
number in 97. The exit code is 1 if a function's error is above the limit that ``spec/elementwise/table.py`` states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from campaigns.command import parser_of
from convgrad.engines.addresses import address_of
from convgrad.engines.settings import count
from convgrad.engines.tensors import Strided
from convgrad.functional.elementwise import compute
from convgrad.spec.elementwise.table import MAPS

AT_ONCE = 1 << 20  # numbers, whose f64 values fit into a cache
_EXPONENT = 0x7FF0_0000_0000_0000  # the bits that an f64 number shares with the power of two below it
_IN_F64 = "sin cos tan asin acos atan sinh cosh asinh acosh atanh exp2 log2 log10"
Function = Callable[[torch.Tensor], torch.Tensor]


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Return the normal distribution function with a small relative error in its tail."""
    tail = 0.5 * torch.special.erfc(x.abs() * 0.5**0.5)
    return torch.where(x < 0, tail, 1 - tail)


def _argument(x: torch.Tensor) -> torch.Tensor:
    return 2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)


EXACT: dict[str, Function] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sqrt": torch.sqrt,
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "silu": lambda x: x * torch.sigmoid(x),
    "mish": torch.nn.functional.mish,
    "gelu": lambda x: x * _normal(x),
    "gelu_tanh": lambda x: x * torch.sigmoid(_argument(x)),
    **{name: getattr(torch, name) for name in _IN_F64.split()},
}


def errors(name: str, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the errors of a function in ulp; a result that is infinite or NaN must be the expected one."""
    found = np.empty_like(x)
    tensors = (Strided("f32", 0, 0),) * 2
    compute(name, tensors, (1, 1, x.size), [address_of(x), address_of(found)], count(None), (x, found))
    exact = EXACT[name](torch.from_numpy(x).double()).numpy()
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        ulp = np.maximum((exact.view(np.int64) & _EXPONENT).view(np.float64) * 2.0**-23, 2.0**-149)
        error = np.abs(found - exact) / ulp
        same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    return np.where(np.isfinite(error), error, np.where(same, 0.0, np.inf))


def worst(name: str, every: int) -> tuple[float, float]:
    """Return the largest error of a function, and the number at which it occurs."""
    largest, where = 0.0, 0.0
    for first in range(0, 1 << 32, AT_ONCE * every):
        numbers = np.arange(first, min(1 << 32, first + AT_ONCE * every), every, dtype=np.uint64)
        x = numbers.astype(np.uint32).view(np.float32)
        error = errors(name, x)
        at = int(error.argmax())
        if error[at] > largest:
            largest, where = float(error[at]), float(x[at])
    return largest, where


def main(arguments: Sequence[str]) -> int:
    """Print the largest error of each function in ulp, the number at which it occurs, and the limit, as CSV."""
    parser = parser_of("every_f32", __doc__)
    parser.add_argument("--every", type=int, default=1, help="try one number in so many (default: %(default)s)")
    parser.add_argument("names", nargs="*", default=list(EXACT), metavar="NAME", help="functions (default: all)")
    options = parser.parse_args(arguments)
    failed = False
    print("function,ulp,number,limit,every")
    for name in options.names:
        error, where = worst(name, options.every)
        failed |= error > MAPS[name].ulps
        print(f"{name},{error:.3f},{where!r},{MAPS[name].ulps:g},{options.every}", flush=True)
    return int(failed)
