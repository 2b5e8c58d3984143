"""NaN and infinity reach what their taps reach; subnormals survive any floating-point control; rounding is ours."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.emit import Module
from convgrad.formats import FORMATS, store
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.spec.ordered import evaluate_in_order
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import HOST, empty, plans_for, prepared_weights, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers


@tiers("seed, isa", range(24), HOST, every=5)
def test_non_finite_values_reach_existing_taps_only(seed: int, isa: str) -> None:
    case, prepared = prepared_weights(seed)
    one, rng = prepared.problem, np.random.default_rng(seed)
    operands = [a.copy(order="K") for a in prepared.operands]
    for array in operands:
        for value in (np.nan, np.inf, -np.inf):
            array[tuple(rng.integers(0, n) for n in array.shape)] = value
    expected = evaluate_in_order(one, operands)
    for plan in plans_for(one, operands, empty(one), ISAS[isa])[::13]:
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, (case, plan))


@tiers("output, isa", ALL_TYPES, HOST, every=3)
def test_rounding_to_every_output(output: str, isa: str) -> None:
    one = replace(problem("BWD_W f32 NXC mb1ic40iw1oc40ow1kw1pw0"), output_format=FORMATS[output])
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 40, np.uint32)
    bits[:8] = [0x7FC00001, 0xFF800001, 0x7F800000, 0x80000000, 0x00000001, 0x3F808000, 0x3F818000, 0x477FF000]
    values = bits.view(np.float32).reshape(1, 40, 1)
    ones = np.ones((1, 40, 1), np.float32)
    for operands in ([values, ones], [ones, values]):
        expected = evaluate_in_order(one, operands)
        for plan in plans_for(one, operands, empty(one), ISAS[isa])[::11]:
            assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)


@pytest.mark.parametrize("output", ["f8_e4m3", "f8_e5m2"])
@pytest.mark.parametrize("isa", HOST)
def test_every_number_of_8_bits_and_what_lies_between(output: str, isa: str) -> None:
    """The numbers, the middles of neighbours, the f32 numbers next to those, and what is beyond the largest."""
    fmt = FORMATS[output]
    numbers = np.sort(np.arange(256, dtype=np.uint8).view(fmt.dtype).astype(np.float32))
    numbers = np.append(numbers[np.isfinite(numbers)], np.float32(fmt.largest * (1 + fmt.unit)))
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 2.0**-149, -0.0], np.float32)
    values = np.concatenate([numbers, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), beyond])
    values = values.astype(np.float32).reshape(1, -1, 1)
    one = replace(problem(f"BWD_W f32 NXC mb1ic{values.size}iw1oc1ow1kw1pw0"), output_format=fmt)
    operands = [values, np.ones((1, 1, 1), np.float32)]
    expected = store(values.astype(np.float64) + 0.0, fmt).reshape(1, values.size, 1)
    for plan in plans_for(one, operands, empty(one), ISAS[isa])[::11]:
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)


@tiers("fmt, isa, data_format", ["bf16", "f8_e4m3", "f16", "f8_e5m2"], HOST, ["NXC", "NCX"], every=3)
def test_every_narrow_value_is_widened_exactly(fmt: str, isa: str, data_format: str) -> None:
    bits = FORMATS[fmt].bits
    count = 1 << 8 * bits.itemsize
    one = problem(f"BWD_W {fmt} {data_format} mb1ic{count // 16}iw16oc1ow1kw16pw0")
    one = replace(one, output_format=FORMATS["f32"])
    values = np.arange(count, dtype=bits).view(FORMATS[fmt].dtype).reshape(1, count // 16, 16)
    if data_format == "NXC":
        values = np.ascontiguousarray(values.swapaxes(1, 2)).swapaxes(1, 2)
    operands = [values, np.ones((1, 1, 1), values.dtype)]
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32) + np.float32(0)
    expected = np.ascontiguousarray(np.where(np.isnan(expected), np.float32(np.nan), expected))
    for plan in plans_for(one, operands, empty(one), ISAS[isa])[::7]:
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)


@pytest.mark.skipif("avx2" not in HOST, reason="MXCSR is of x86")
@pytest.mark.parametrize("isa", HOST)
def test_flush_to_zero_outside_changes_nothing(isa: str) -> None:
    one = problem("BWD_W f32 NXC mb2ic17iw20oc18ow20kw3pw1")
    rng = np.random.default_rng(1)
    src = (rng.standard_normal((2, 17, 20)) * 1e-38).astype(np.float32)
    dst = (rng.standard_normal((2, 18, 20)) * 1e-3).astype(np.float32)
    expected = evaluate_in_order(one, [src, dst])
    out, plan = empty(one), plans_for(one, [src, dst], empty(one), ISAS[isa])[0]
    run_plan(plan, one, [src, dst], out)
    with mxcsr(0xFFC0) as current:  # flush to zero, denormals are zero, round towards zero, no exceptions
        out[...] = np.nan
        run_plan(plan, one, [src, dst], out)
        assert current() & 0xFFC0 == 0xFFC0
    assert_same_bits(np.ascontiguousarray(out), expected, plan)


@contextmanager
def mxcsr(value: int) -> Iterator[object]:
    """Set the floating-point control register of this thread, and put it back."""
    isa = ISAS["avx2"]
    module = Module()
    for name, intrinsic in (("get", "llvm.x86.sse.stmxcsr"), ("set", "llvm.x86.sse.ldmxcsr")):
        f = module.function(name, public=True, place="ptr")
        f.intrinsic("void", intrinsic, f.place)
        f.done()
    linker = jit.llvm().create_lljit_compiler(jit.target_machine(isa, triple=jit.llvm().get_process_triple()))
    builder = jit.llvm().JITLibraryBuilder().add_ir(str(module)).export_symbol("get").export_symbol("set")
    tracker = builder.link(linker, "mxcsr")
    get, put = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(tracker[n]) for n in ("get", "set"))
    word, before = ctypes.c_uint32(), ctypes.c_uint32()

    def current() -> int:
        get(ctypes.addressof(word))
        return word.value

    get(ctypes.addressof(before))
    word.value = value
    put(ctypes.addressof(word))
    try:
        yield current
    finally:
        put(ctypes.addressof(before))
        del tracker
