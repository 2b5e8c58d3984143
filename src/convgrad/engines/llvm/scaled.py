"""The IR of a driver that multiplies each image of a tensor by its own factor, in f32."""

from __future__ import annotations

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named, arguments
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.driver import claimed
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import FLAGS, Record, addresses

ARGUMENTS = FLAGS + addresses("data", "factors", "out") + Record("images", "elements")  # ``elements`` is per image


def module_of(isa: Isa, fmt: str) -> str:
    """Return the IR of ``driver(arguments, scratch)`` for data of format ``fmt``."""
    module = Module()
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = arguments(f, ARGUMENTS)
    with claimed(f, isa, a, a.images) as image:
        _image(f, isa, fmt, a, image)
    return str(module)


def _image(f: Function, isa: Isa, fmt: str, a: Named, image: Value) -> None:
    """Emit the multiplication of an image's elements by the image's factor, in f32."""
    lanes, begin = isa.lanes, image * a.elements
    factor = f.splat(f.load("float", a.factors, image * F32_BYTES), lanes)
    data, out = f.at(a.data, begin * BYTES[fmt]), f.at(a.out, begin * F32_BYTES)

    def scale(first: Value, vectors: int, mask: Value | None) -> None:
        for at in (first + v * lanes for v in range(vectors)):
            wide = read(f, fmt, f.at(data, at * BYTES[fmt]), lanes, mask)
            product, to = f.op(wide.type, f"fmul {wide}, {factor.name}"), f.at(out, at * F32_BYTES)
            if mask is None:
                f.store(product, to)
            else:
                f.masked_store(product, to, mask)

    in_vectors(f, a.elements, lanes, scale)
