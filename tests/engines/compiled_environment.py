"""Calls that find nothing planned or compiled, under other floating-point environments; run as a program.

``python -m tests.engines.compiled_environment KINDS WORD...`` sets MXCSR to each word in turn, with all caches empty,
makes every call on operands of these formats, separated by commas, and prints by word the digests of results, of
machine code, and of what Python code computes.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

import convgrad
from convgrad import verify
from convgrad.engines.llvm import convert, execute, isas, jit
from convgrad.engines.llvm.driver import DRIVER
from convgrad.engines.llvm.emit import Module
from convgrad.formats import ACCUMULATIONS, FORMATS
from convgrad.plan.machine import Isa
from tests.engines.float_environment import DEFAULT, FLAGS, ControlRegister

Array = np.ndarray
RESULTS = [name for name in FORMATS if name != "f64"]
SRC, WEIGHTS = (1, 6, 6, 16), (3, 3, 16, 16)
FEW = (1, 4, 4, 16)  # of SRC, where Python code computes each element


def narrowing(isa: Isa, fmt: str) -> str:
    """Return the IR of a function that widens values of a format, and rounds values to it."""
    module = Module()
    f = module.function("driver", public=True, **DRIVER)
    convert.write(f, fmt, [convert.read(f, fmt, f.arguments, isa.lanes)], f.scratch)
    convert.write(f, fmt, [f.load("float", f.arguments)], f.scratch)
    f.done()
    return str(module)


def operands(kind: str, *shapes: tuple[int, ...]) -> list[Array]:
    """Return operands from the smallest subnormal number to the largest finite one, powers of two and others."""
    rng, fmt = np.random.default_rng(7), FORMATS[kind]
    low, high = fmt.min_exponent - fmt.significand_bits + 1, fmt.max_exponent
    made = [np.ldexp(rng.integers(1, 4, shape).astype(float), rng.integers(low, high, shape)) for shape in shapes]
    with np.errstate(all="ignore"):
        return [(each * rng.choice([-1, 1], each.shape)).astype(fmt.dtype) for each in made]


def identity(kind: str) -> Array:
    """Return weights of one tap that pass each channel on."""
    return np.eye(16, dtype=FORMATS[kind].dtype).reshape(1, 1, 16, 16)


def results(kinds: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield calls of kernels of these formats of operands, and of each format of results, by name."""
    for operand, to in itertools.product(kinds, RESULTS):
        if operand == "f64":
            continue
        src, weights = operands(operand, SRC, WEIGHTS)
        yield f"{operand} passed on to {to}", partial(convgrad.convolution, src, identity(operand), dtype=to)
        if to != operand and len(kinds) < len(FORMATS):
            continue
        yield f"{operand} forward to {to}", partial(convgrad.convolution, src, weights, dtype=to)
        backward = partial(convgrad.convolution_backward_data, src, weights, (1, 8, 8, 16), dtype=to)
        yield f"{operand} backward data to {to}", backward
        by_weights = partial(convgrad.convolution_backward_weights, src, src[:, :4, :4], WEIGHTS, dtype=to)
        yield f"{operand} backward weights to {to}", by_weights
        yield f"{operand} bias gradient to {to}", partial(convgrad.bias_add_backward, src, dtype=to)
        same = {"pads_begin": 1, "pads_end": 1, "max_error": 1e9}
        yield f"{operand} Winograd to {to}", partial(convgrad.convolution, src, weights, dtype=to, **same)


def numbers(kinds: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield calls of Python code that computes or decides, by name."""
    for name, fmt in ACCUMULATIONS.items():
        yield f"numbers of {name}", lambda fmt=fmt: np.array([fmt.unit, fmt.tiny, fmt.largest])  # type: ignore[misc]
    for kind in kinds:
        src, weights, bias = operands(kind, FEW, WEIGHTS, (16,))
        call = "Convolution", src, weights
        yield f"bound of {kind}", partial(convgrad.error_bound, *call)
        if kind != "f64":
            yield f"exact result of {kind}", partial(verify.exact, *call)
        yield f"verdict on {kind}", partial(verdict, *call)
        yield f"plan of {kind}", partial(plan, *call)
        yield f"bias added to {kind}", partial(convgrad.bias_add, src, bias)
        yield f"activation of {kind}", partial(convgrad.convolution, src, identity(kind), activation="relu")
    src, weights = operands("f64", SRC, WEIGHTS)
    yield "f64 forward", partial(convgrad.convolution, src, weights)
    yield "f64 backward data", partial(convgrad.convolution_backward_data, src, weights, (1, 8, 8, 16))
    yield "f64 backward weights", partial(convgrad.convolution_backward_weights, src, src[:, :4, :4], WEIGHTS)
    (src,) = operands("f32", (4, 6, 6, 16))
    yield "norms of samples", partial(convgrad.per_sample_weights_norm2, src, src[:, :4, :4], WEIGHTS)
    yield "scales", partial(convgrad.clip_scales, np.abs(src).reshape(-1)[:99].astype(float), max_norm=0.3)
    yield "instruction sets", lambda: list(map(str, isas.host_isas()))
    for most in np.arange(3, 12, 4.5):
        yield f"algorithm for {most}", partial(algorithm, float(most))


def verdict(operator: str, src: Array, weights: Array) -> str:
    """Return the verdict on a result that was computed under the default environment."""
    return str(verify.check(operator, _right[str(src.dtype)], src, weights))


_right: dict[str, Array] = {}  # results under the default environment


def plan(operator: str, src: Array, weights: Array) -> str:
    return str(convgrad.explain(operator, src.shape, weights.shape, threads=2, operand_type=str(src.dtype)))


def algorithm(max_error: float) -> str:
    shapes = (8, 28, 28, 128), (3, 3, 128, 128)
    return str(convgrad.explain("Convolution", *shapes, pads_begin=1, pads_end=1, threads=2, max_error=max_error))


def forget() -> None:
    """Empty all caches of the package: of results of functions, of calls, and of kernels."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith("convgrad."):
            each.cache_clear()
    execute._kept.clear()
    jit._linker.kernels.clear()
    jit._linker.compiled.clear()


def digest(value: object) -> str:
    data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def main(kinds: Sequence[str], words: Sequence[int]) -> None:
    register, isa = ControlRegister(), isas.host_isas()[0]
    told: dict[int, dict[str, str]] = {}
    for kind in kinds:
        src, weights = operands(kind, FEW, WEIGHTS)
        _right[str(src.dtype)] = convgrad.convolution(src, weights)

    def run(calls: Mapping[str, Callable[[], object]], word: int) -> dict[str, str]:
        found = {}
        for name, call in calls.items():
            print(f"{word:#x} {name}", flush=True)
            register.put(word)
            try:
                value = call()
                left = register.get() & ~FLAGS
            finally:
                register.put(DEFAULT)
            found[name] = digest(value)
            if left != word:
                found[f"register after {name}"] = hex(left)
        return found

    for word in words:
        forget()
        made = {fmt: partial(jit.functions, isa, narrowing, isa, fmt, driver=jit.DRIVER) for fmt in RESULTS}
        run(made, word)
        told[word] = {f"function {at}": digest(code) for at, code in enumerate(jit._linker.compiled.values())}
        assert len(told[word]) == len(RESULTS)
        if kinds:
            told[word] |= run(dict(results(kinds)), word) | run(dict(numbers(kinds)), word)
            told[word]["machine code"] = digest([*jit._linker.compiled.items()])
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1].split(",") if sys.argv[1] else (), [int(word, 0) for word in sys.argv[2:]])
