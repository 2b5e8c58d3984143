"""Gradients under other floating-point control registers; run as a program, as a trapped exception ends a process.

``python -m tests.engines.float_environment TYPES WORD...`` sets MXCSR to each word in turn, makes every call on this
thread and on the pool's, of each layer with so many types of operands, and prints the digests of results by word; a
first word that is not the default finds nothing yet compiled.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from llvmlite import binding

import convgrad
from convgrad.engines import addresses, pool
from convgrad.formats import FORMATS
from convgrad.functional import scaled_sum
from tests.support.children import HANG_S

Array = np.ndarray

DEFAULT, FLAGS = 0x1F80, 0x3F
FLUSH, DENORMALS_ARE_ZERO = 0x8000, 0x0040
DOWN, UP, TO_ZERO = 0x2000, 0x4000, 0x6000
INVALID, DENORMAL, DIVISION, OVERFLOW, UNDERFLOW, INEXACT = (0x80 << n for n in range(6))  # masks: cleared, they trap

_IR = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define void @put(ptr %word) { call void @llvm.x86.sse.ldmxcsr(ptr %word) ret void }
define void @get(ptr %word) { call void @llvm.x86.sse.stmxcsr(ptr %word) ret void }
"""


class ControlRegister:
    """MXCSR of the thread that asks."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        library = binding.JITLibraryBuilder().add_ir(_IR).export_symbol("put").export_symbol("get")
        self.tracker = library.link(binding.create_lljit_compiler(machine, use_jit_link=False), "mxcsr")
        self._put, self._get = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.tracker[n]) for n in ("put", "get"))

    def put(self, value: int) -> None:
        self._put(ctypes.addressof(ctypes.c_uint32(value)))

    def get(self) -> int:
        word = ctypes.c_uint32()
        self._get(ctypes.addressof(word))
        return word.value


CALLS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "dense": ((2, 9, 9, 24), (2, 9, 9, 40), (3, 3, 24, 40), {"auto_pad": "same_upper"}),
    "1x1 strided": ((2, 9, 9, 24), (2, 5, 5, 40), (1, 1, 24, 40), {"strides": 2}),
    "depthwise": ((2, 9, 9, 24), (2, 9, 9, 24), (3, 3, 1, 24), {"auto_pad": "same_upper", "groups": 24}),
    "few channels a group": ((2, 9, 9, 24), (2, 9, 9, 24), (3, 3, 4, 24), {"auto_pad": "same_upper", "groups": 6}),
    "thin": ((2, 9, 9, 3), (2, 9, 9, 40), (3, 3, 3, 40), {"auto_pad": "same_upper"}),
    "patches": ((2, 12, 12, 3), (2, 3, 3, 40), (4, 4, 3, 40), {"strides": 4}),
    "1-D": ((2, 300, 8), (2, 298, 16), (3, 8, 16), {}),
}
LOWEST = {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}  # exponent of the smallest subnormal number


def normal(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Array:
    return rng.standard_normal(shape)


def subnormal(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Array:
    """Return numbers around the smallest normal one: some above, most below."""
    fraction = FORMATS[kind].significand_bits
    return np.ldexp(rng.standard_normal(shape), LOWEST[kind] + fraction + rng.integers(-4, 3, shape))


def extreme(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Array:
    """Return numbers that overflow when multiplied or added, infinities and NaN among them."""
    values = rng.standard_normal(shape) * {"f16": 3e4, "bf16": 1e38, "f32": 1e38}[kind]
    values[rng.random(shape) < 0.01] = np.inf
    values[rng.random(shape) < 0.003] = np.nan
    return values


DATA = {"normal": (normal, normal), "subnormal": (subnormal, normal), "extreme": (extreme, extreme)}


def operands(shapes: Sequence[tuple[int, ...]], kind: str, data: str) -> list[Array]:
    rng = np.random.default_rng([91, len(kind)])
    with np.errstate(all="ignore"):
        return [
            make(shape, kind, rng).astype(FORMATS[kind].dtype) for make, shape in zip(DATA[data], shapes, strict=True)
        ]


def added(src: Array, dst: Array, old: Array, **rest: Any) -> Array:
    """Add a weight gradient to a copy of ``old``."""
    return convgrad.convolution_backward_weights(
        src, dst, old.shape, dtype=old.dtype, out=old.copy(), accumulate=True, **rest
    )


def in_pieces(dst: Array, **rest: Any) -> Array:
    """Join a bias gradient of three pieces of the batch, of 6 images a leaf."""
    pieces = [convgrad.partials("BiasAddBackward", dst[a : a + 6], first=a, **rest) for a in range(0, 18, 6)]
    return convgrad.join(pieces)


def gradients(types: int = 3) -> dict[str, Callable[..., Array]]:
    """Return calls of the generated engine by name, each with so many types of operands, in turn."""
    found: dict[str, Callable[..., Array]] = {}
    weights = convgrad.convolution_backward_weights
    for data, (turn, kind) in product(DATA, enumerate(("f32", "bf16", "f16"))):
        some: dict[str, Callable[..., Array]] = {}
        for name, (src_shape, dst_shape, shape, rest) in CALLS.items():
            src, dst = operands((src_shape, dst_shape), kind, data)
            old = np.full(shape, 2.0**-130, np.float32)
            some[name] = partial(weights, src, dst, shape, **rest)
            some[f"{name}, added to f32"] = partial(added, src, dst, old, **rest)
        dst, _ = operands(((2, 40, 24), (1,)), kind, data)
        some["bias"] = partial(convgrad.bias_add_backward, dst)
        dst, _ = operands(((18, 40, 24), (1,)), kind, data)
        some["bias in pieces"] = partial(in_pieces, dst)
        src_shape, dst_shape, shape, rest = CALLS["dense"]
        src, dst = operands((src_shape, dst_shape), kind, data)
        scale = np.array([0.7, 2.0**-20 / 3])  # which are rounded to f32
        some["norms of samples"] = partial(convgrad.per_sample_weights_norm2, src, dst, shape, **rest)
        some["samples scaled"] = partial(convgrad.weighted_weights_sum, src, dst, shape, scale=scale, **rest)
        for at, (name, call) in enumerate(some.items()):
            if (turn + at // 2) % 3 < types:
                found[f"{name}, {data} {kind}"] = call
    norms = np.ldexp(np.float32(1), range(-149, -100))
    found["scales of subnormal norms"] = lambda threads: convgrad.clip_scales(norms, 2.0**-75)
    found["samples scaled in pieces, subnormal f64"] = scaled_in_pieces
    return found


def scaled_in_pieces(threads: int) -> Array:
    """Scale samples of f64 a few at a time. Their sums are added one after another."""
    most, scaled_sum.BATCH_BYTES = scaled_sum.BATCH_BYTES, 0
    try:
        return convgrad.weighted_bias_sum(np.full((40, 70, 1), 2.0**-1070), scale=np.ones(40), threads=threads)
    finally:
        scaled_sum.BATCH_BYTES = most


def by_numpy(types: int) -> dict[str, Callable[..., Array]]:
    """Return calls of the NumPy engine by name, f64's and others, of so many types; and products by NumPy alone."""
    found: dict[str, Callable[..., Array]] = {}
    for data in ("normal", "subnormal"):
        found[f"plain products {data} f32"] = partial(np.multiply, *operands(((1000,), (1000,)), "f32", data))
        for kind in (*("f32", "bf16", "f16")[:types], "f64"):
            src, weights = operands(((2, 9, 9, 24), (3, 3, 24, 8)), kind, data)
            dst, bias = operands(((2, 7, 7, 8), (8,)), kind, data)
            words = f"{data} {kind}"
            found[f"forward {words}"] = partial(convgrad.convolution, src, weights)
            found[f"data gradient {words}"] = partial(convgrad.convolution_backward_data, dst, weights, src.shape)
            found[f"bias added {words}"] = partial(convgrad.bias_add, dst, bias)
        src, dst = operands(((2, 9, 9, 24), (2, 7, 7, 8)), "f64", data)
        found[f"weight gradient {data} f64"] = partial(convgrad.convolution_backward_weights, src, dst, (3, 3, 24, 8))
    return found


THREADS = 2


def on_the_pool(act: Callable[[], None]) -> None:
    """Do something once on each of the pool's threads."""
    current = pool._current()
    while current.looking or current.idle < len(current.helpers):
        time.sleep(1e-3)
    together = threading.Barrier(max(THREADS, pool.size()))

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        together.wait(HANG_S)
        act()

    pool.run(kernel, addresses.words(4), 64, together.parties, 1e6)  # so long that the caller only waits


def main(types: int, words: Sequence[int]) -> None:
    faulthandler.enable()
    pool.usable_cores = lambda: tuple(range(64))
    register = ControlRegister()
    told: dict[str, Any] = {"here": {}, "pool": {}, "numpy": {}, "changed": []}

    def check(word: int, where: str) -> None:
        if register.get() & ~FLAGS != word:
            told["changed"].append(f"{register.get():#x} after {word:#x}: {where}")

    put: set[int] = set()  # a helper that starts later has the default, for example because another is still busy

    def put_in_pool(word: int) -> None:
        register.put(word)
        put.add(threading.get_ident())

    def check_in_pool(word: int) -> None:
        if threading.get_ident() in put:
            check(word, "a thread of the pool")

    def digests(calls: Mapping[str, Callable[..., Array]], word: int, **options: Any) -> dict[str, str]:
        found = {}
        for name, call in calls.items():
            print(f"{word:#x} {name}", flush=True)
            register.put(word)
            result = call(**options)
            check(word, name)
            register.put(DEFAULT)
            found[name] = hashlib.sha256(result.tobytes()).hexdigest()[:16]
        return found

    on_the_pool(lambda: None)  # its threads begin with the default
    long_ms, calls, others = pool.LONG_MS, gradients(types), by_numpy(types)
    for word in words:
        told["here"][word] = digests(calls, word, threads=1)
        put.clear()
        on_the_pool(partial(put_in_pool, word))
        pool.LONG_MS = 0.0  # the caller only waits
        told["pool"][word] = digests(calls, word, threads=THREADS)
        pool.LONG_MS = long_ms
        on_the_pool(partial(check_in_pool, word))
        if word & DEFAULT == DEFAULT:
            told["numpy"][word] = digests(others, word)
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(word, 0) for word in sys.argv[2:]])
