"""Samples scaled in IR: a driver that multiplies each image of a tensor by a number of its own, in f32."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named, arguments
from convgrad.engines.llvm.claims import claimed
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import FLAGS, Record, addresses

ARGUMENTS = addresses("data", "factors", "out") + Record("images", "elements")  # of an image, contiguous
VECTORS = 4  # at a time


def module_of(isa: Isa, fmt: str) -> str:
    """Return the IR of ``driver(arguments, scratch)`` for data in a format."""
    module = Module()
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = arguments(f, FLAGS + ARGUMENTS)
    with claimed(f, isa, a, a.images) as image:
        _image(f, isa, fmt, a, image)
    return str(module)


def _image(f: Function, isa: Isa, fmt: str, a: Named, image: Value) -> None:
    """Multiply the elements of an image, some vectors at a time, the rest by masks."""
    lanes, size, first = isa.lanes, BYTES[fmt], image * a.elements
    factor = f.splat(f.load("float", a.factors, image * F32_BYTES), lanes)

    def product(place: Value, mask: Value | None = None) -> Value:
        wide = read(f, fmt, place, lanes, mask)
        return f.op(wide.type, f"fmul {wide}, {factor.name}")

    step = VECTORS * lanes
    rounds = f.op("i64", f"udiv {a.elements}, {step}")
    data, out = f.at(a.data, first * size), f.at(a.out, first * F32_BYTES)
    with f.loop(rounds, data=data, out=out) as each:
        for v in range(VECTORS):
            f.store(product(f.at(each.data, v * lanes * size)), each.out, v * lanes * F32_BYTES)
        each.next(data=f.at(each.data, step * size), out=f.at(each.out, step * F32_BYTES))
    left = a.elements - rounds * step
    for v in range(VECTORS):
        mask = f.mask(left - v * lanes, lanes)
        place = f.at(each.data, v * lanes * size)
        f.masked_store(product(place, mask), f.at(each.out, v * lanes * F32_BYTES), mask)
