"""The IR of a driver that computes the squared norms of per-sample gradients.

Threads claim samples. For each sample, the thread calls the driver of a single image, which writes the gradient to
scratch. Then the thread adds the squares of the gradient in the order of ``spec/samples.py``, while the gradient is
still in a cache.
"""

from __future__ import annotations

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, arguments
from convgrad.engines.llvm.driver import DRIVER, claimed, float_environment
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.records import COLUMN_BYTES, FLAGS, SHARED, Record, addresses
from convgrad.plan.split_k.schedule import CALL, OPERANDS
from convgrad.spec.samples import CHAINS

ARGUMENTS = FLAGS + addresses(
    "driver", "image_arguments",  # the driver of one image, and its arguments without the addresses
    "a.data", "b.data", "norms",  # addresses of the first sample's operands and of its norm
) + Record(
    "samples", "a.image", "b.image",  # the number of samples; bytes between the operands of two samples
    "columns", "flags",  # the number of arguments of the driver of one image; the offset of its flags
    "elements", "gradient_at", "scratch_at",  # elements per gradient; its offset and that of the driver's scratch
)  # fmt: skip
_F32, _F64 = 4, 8


def module_of(isa: Isa) -> str:
    """Return the IR of ``driver``, whose parameters are DRIVER, and of ``squares(data, rows, elements, norms)``."""
    module = Module()
    _squares(module, isa)
    _driver(module, isa)
    return str(module)


def _squares(module: Module, isa: Isa) -> None:
    """Emit ``squares``, which writes the squared norms of contiguous rows."""
    f = module.function("squares", public=True, data="ptr", rows="i64", elements="i64", norms="ptr")
    sums = f.alloca("double", CHAINS)
    with float_environment(f, isa), f.loop(f.rows, data=f.data) as row:
        f.store(_norm2(f, isa, row.data, sums), f.at(f.norms, row.index * _F64))
        row.next(data=f.at(row.data, f.elements * _F32))
    f.done()


def _norm2(f: Function, isa: Isa, data: Value, sums: Value) -> Value:
    """Return the sum of the squares of a row. Vector lanes sum CHAINS chains, which the tree then adds."""
    lanes = isa.lanes // 2
    kind, vectors = f"<{lanes} x double>", range(CHAINS // lanes)

    def added(part: Value, total: Value) -> Value:
        wide = f.op(kind, f"fpext {part} to {kind}")
        return f.fma(wide, wide, total)  # a square is exact, so a fused multiply-add has the same bits

    whole = f.elements >> CHAINS.bit_length() - 1
    with f.loop(whole, **{f"v{v}": f.zeros(kind) for v in vectors}) as loop:
        here = f.at(data, loop.index * (CHAINS * _F32))
        parts = [f.load(f"<{lanes} x float>", here, v * lanes * _F32) for v in vectors]
        loop.next(**{f"v{v}": added(parts[v], loop.carried[f"v{v}"]) for v in vectors})
    left, here = f.elements - whole * CHAINS, f.at(data, whole * (CHAINS * _F32))
    for v in vectors:
        mask = f.mask(left - v * lanes, lanes)
        part = f.masked_load(f"<{lanes} x float>", f.at(here, v * lanes * _F32), mask)
        f.store(added(part, loop.carried[f"v{v}"]), sums, v * lanes * _F64)  # masked lanes add 0
    return tree.reduced(f, [f.load("double", sums, chain * _F64) for chain in range(CHAINS)])


def _driver(module: Module, isa: Isa) -> None:
    """Emit ``driver``, which computes the gradient and the squared norm of each sample that its thread claims."""
    f = module.function("driver", public=True, **DRIVER)
    a = arguments(f, ARGUMENTS)
    gradient, scratch = f.at(f.scratch, a.gradient_at), f.at(f.scratch, a.scratch_at)
    with claimed(f, isa, a, a.samples, lambda: _own_arguments(f, a, gradient)) as sample:
        f.store(f.value(0), f.at(f.at(f.scratch, a.flags), SHARED.at("claimed")))  # reset the counter of tasks
        for name in OPERANDS:
            operand = a.of(name)
            f.store(f.at(operand.data, sample * operand.image), f.scratch, CALL.at(f"{name}.data"))
        f.say(f"call void {a.driver.name}({f.scratch}, {scratch}, i64 0)")
        f.call("squares", gradient, f.value(1), a.elements, f.at(a.norms, sample * _F64))


def _own_arguments(f: Function, a: Named, gradient: Value) -> None:
    """Copy the arguments of the driver of one image to this thread's scratch.

    The thread gets its own flags, except the stop flag, which all threads share.
    """
    with f.loop(a.columns) as column:
        f.store(
            f.load("i64", a.image_arguments, column.index * COLUMN_BYTES), f.at(f.scratch, column.index * COLUMN_BYTES)
        )
    flags = f.at(f.scratch, a.flags)
    for flag in FLAGS.columns:
        f.store(a.stop if flag == "stop" else f.at(flags, SHARED.at(flag)), f.scratch, CALL.at(flag))
    f.store(gradient, f.scratch, CALL.at("out"))
