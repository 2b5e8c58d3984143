"""One problem, one result: for every number of threads, instruction set, layout and run."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines import threads as pool
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.spec.geometry import Conv
from engine_helpers import HOST, empty, plans_for, run_plan

SHAPES = [
    "mb5ic67ih13oc70oh13kh3ph1",  # packed images
    "mb2ic64ih24oc64oh24kh3ph1",
    "mb2ic48ih30oc130oh30kh1ph0",
    "mb3ic3ih40oc64oh20kh7sh2ph3",
    "g4mb2ic32ih20oc64oh10kh3sh2ph1",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_same_bits(shape: str, fmt: str) -> None:
    hashes = {}
    for data_format in ("NXC", "NCX"):
        one = problem(f"BWD_W {fmt} {data_format} {shape}")
        conv = one.geometry
        assert isinstance(conv, Conv)
        rng = np.random.default_rng(7)
        operands = []
        for extents, layout in zip((conv.src_shape, conv.dst_shape), one.layouts, strict=False):
            array = rng.standard_normal(extents, np.float32).astype(one.operand_format.dtype)
            if layout == "NXC":
                array = np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
            operands.append(array)
        for isa in HOST:
            for threads in (1, 2, 3, 8):
                plan = plans_for(one, operands, empty(one), ISAS[isa], threads)[0]
                got = run_plan(plan, one, operands, empty(one))
                hashes[data_format, isa, threads] = hashlib.sha256(got.tobytes()).hexdigest()
        out = empty(one)
        choice = engines.execute(one, operands, out, 2)
        assert choice.engine == "generated"
        hashes[data_format, "chosen", 2] = hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()
    assert len(set(hashes.values())) == 1, hashes


def test_the_pool_is_used() -> None:
    one = problem("BWD_W f32 NXC mb4ic64ih28oc64oh28kh3ph1")
    conv = one.geometry
    assert isinstance(conv, Conv)
    operands = [np.ones(s, np.float32) for s in (conv.src_shape, conv.dst_shape)]
    plan = plans_for(one, operands, empty(one), ISAS[HOST[0]], 3)[0]
    assert plan.threads == 3
    run_plan(plan, one, operands, empty(one))
    assert pool.size() >= 2
