"""Calls that want more memory than there is; run as a program, as the limit is of a whole process.

``python -m tests.package.limited LIMIT ROOM [NAME...]`` leaves ROOM MiB by a resource limit, makes the attempts of
these names, and prints for each: did it compute, what did it raise, and do small calls still compute thereafter.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import convgrad
from convgrad.engines.cuda.kernels import ptx
from convgrad.engines.llvm import jit
from convgrad.notation import problem
from convgrad.plan.cuda.plan import plan
from convgrad.plan.passes import dense_strides
from convgrad.starting import run_on_large_stack

Array = np.ndarray

MIB = 1 << 20
COUNTED = {"AS": "VmSize", "DATA": "VmData"}
SIZES = (512, 1536, 3072)  # channels of 3x3 weights of 9 to 324 MiB
KERNELS = 6


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    """Return ones that take no memory."""
    return np.broadcast_to(np.ones((), dtype), shape)


def square(channels: int, positions: int = 2, **rest: Any) -> bool:
    """Compute 3x3 weights of many channels, and tell whether they are right."""
    x = ones(1, positions, positions, channels, dtype=rest.pop("operand", np.float32))
    result = convgrad.convolution_backward_weights(x, x, (3, 3, channels, channels), auto_pad="same_upper", **rest)
    one_by_one = np.ones((positions, positions), np.float32)
    small = convgrad.convolution_backward_weights(
        one_by_one[None, ..., None], one_by_one[None, ..., None], (3, 3, 1, 1), auto_pad="same_upper", threads=1
    )
    return all(bool((result[k] == small[k]).all()) for k in np.ndindex(3, 3))


def usable() -> bool:
    """Tell whether small calls of every kind compute what they should, alone and with help."""
    x, w = ones(2, 9, 9, 24), ones(1, 1, 24, 40)
    found = []
    for threads in (1, None):
        y = convgrad.convolution(x, w, threads=threads)
        found += [
            (y == 24).all(),
            (convgrad.convolution_backward_data(y, w, x.shape, threads=threads) == 24 * 40).all(),
            (convgrad.convolution_backward_weights(x, y, w.shape, threads=threads) == 24 * 162).all(),
            (convgrad.bias_add_backward(y, threads=threads) == 24 * 162).all(),
        ]
    return bool(np.all(found))


def kernels(count: int) -> bool:
    """Compile two kernels for each of so many numbers of channels, and tell whether all results are right."""
    found = []
    for channels in range(1, count + 1):
        x, y = ones(1, 6, 6, channels), ones(1, 6, 6, 2 * channels + 1)
        for dtype in ("f32", "bf16"):
            made = convgrad.convolution_backward_weights(x, y, (1, 1, channels, 2 * channels + 1), dtype=dtype)
            found.append((made == 36).all())
    return bool(np.all(found))


def gpu_kernel() -> bool:
    """Compile a kernel for GPUs."""
    one = problem("FWD_D f32 NXC mb1ic64ih28oc64oh28kh3ph1")
    launch, *_ = plan(one, dense_strides(one), processors=132).launches
    return ".entry tile" in run_on_large_stack(lambda: ptx(launch.spec))


def strides_beyond() -> bool:
    """Sum two positions that are 2^24 apart."""
    x, y = ones(1, 1 << 25, 8), ones(1, 2, 8)
    made = convgrad.convolution_backward_weights(x, y, (2, 8, 8), strides=1 << 24, dilations=1 << 23, threads=1)
    return bool((made == 2).all())


def scratch_alone() -> bool:
    """Compute what needs 3 MiB of scratch where its result, plan and kernel are there and everything else is taken."""
    x = ones(8, 14, 14, 256)
    out = np.full((3, 3, 256, 256), np.nan, np.float32)
    call = partial(convgrad.convolution_backward_weights, x, x, out.shape, auto_pad="same_upper", out=out, threads=1)
    before = threading.Thread(target=call)  # its scratch goes with it
    before.start()
    before.join()
    taken = []
    for size in (MIB, MIB >> 4):
        try:
            while True:
                taken.append(np.empty(size, np.uint8))
        except MemoryError:
            pass
    call()
    return bool((out[1, 1] == 8 * 14 * 14).all())


TOO_LARGE: dict[str, Callable[[], Any]] = {
    "weights": partial(square, 8192),
    "weights of f16": partial(square, 12288, operand=np.float16, threads=1),
    "weights in f64": partial(square, 6144, operand=np.float64),
    "depthwise weights": partial(
        convgrad.convolution_backward_weights, ones(1, 1, 1 << 26), ones(1, 1, 1 << 26), (3, 1, 1 << 26),
        groups=1 << 26, auto_pad="same_upper", threads=1,
    ),
    "transposed weights": partial(
        convgrad.conv_transpose_backward_weights, ones(1, 1, 1 << 15), ones(1, 1, 1 << 14), (1, 1 << 14, 1 << 15)
    ),
    "bias gradient": partial(convgrad.bias_add_backward, ones(1, 1, 1 << 28)),
    "forward": partial(convgrad.convolution, ones(1, 1 << 13, 1 << 13, 1), ones(1, 1, 1, 8)),
    "data gradient": partial(
        convgrad.convolution_backward_data, ones(1, 1 << 13, 1 << 13, 1), ones(1, 1, 8, 1), (1, 1 << 13, 1 << 13, 8)
    ),
    "transposed forward": partial(convgrad.conv_transpose, ones(1, 1 << 13, 1 << 13, 1), ones(1, 1, 8, 1)),
    "a copy in native byte order": partial(
        convgrad.convolution_backward_weights, ones(1, 1 << 28, 1, dtype=">f4"), ones(1, 1 << 28, 1, dtype=">f4"),
        (1, 1, 1), threads=1,
    ),
}  # fmt: skip
PERHAPS: dict[str, Callable[[], Any]] = {
    **{f"{n} channels": partial(square, n, threads=1) for n in SIZES},
    **{f"{n} channels, 2 threads": partial(square, n, threads=2) for n in SIZES},
    **{f"{n} channels of f16 into f32": partial(square, n, operand=np.float16, dtype="f32", threads=1) for n in SIZES},
    "strides beyond": strides_beyond,
    "kernels": partial(kernels, KERNELS),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "100 threads": partial(square, 64, 64, threads=100),
    "small": usable,
    "few kernels": partial(kernels, KERNELS // 2),
    "scratch": scratch_alone,
    "kernel for GPUs": gpu_kernel,
}
ATTEMPTS = TOO_LARGE | PERHAPS | OTHERS
BEGINNINGS = ("cold", "loaded")  # nothing was computed before the limit; only the compiler is loaded


def attempt(name: str) -> dict[str, Any]:
    try:
        return {"name": name, "computed": bool(ATTEMPTS[name]()), "raised": "", "kinds": [], "usable": True}
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        raised = str(error)
    try:
        return {"name": name, "computed": None, "raised": raised, "kinds": kinds, "usable": usable()}
    except Exception as error:
        return {"name": name, "computed": None, "raised": raised, "kinds": kinds, "usable": f"{error!r}"}


def main(limit: str, room: float, names: list[str]) -> None:
    faulthandler.enable()
    if "loaded" in names:
        jit.llvm()
    elif "cold" not in names:
        usable()
        usable()  # at once after another, calls are helped: what waits is compiled then
    with open("/proc/self/status", encoding="ascii") as status:
        (used,) = (int(line.split()[1]) << 10 for line in status if line.startswith(COUNTED[limit]))
    most = used + int(room * MIB)
    resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (most, most))
    for name in names:
        if name not in BEGINNINGS:
            print(f"trying {name}", flush=True)
            print(json.dumps(attempt(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
