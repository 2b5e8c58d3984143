"""The kernel that adds arrays: from the first to the last, every format, every length, nothing written beside."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from convgrad.engines.llvm import jit
from convgrad.engines.llvm.added import add_up, module_of
from convgrad.formats import FORMATS
from convgrad.plan.machine import ISAS
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits

SIZES = (1, 7, 15, 16, 17, 33, 63, 64, 65, 127, 128, 200, 257)
MARK = 7.0


@pytest.mark.parametrize("isa", HOST)
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_terms_are_added_from_the_first_to_the_last(isa: str, name: str) -> None:
    rng, dtype = np.random.default_rng(5), FORMATS[name].dtype
    for size, number, accumulate in product(SIZES, (1, 2, 16), (False, True)):
        terms = [rng.standard_normal(size + 1, np.float32)[1:] for _ in range(number)]
        terms[0][0] = -0.0 if number == 1 else 2.0**-149
        terms[-1][-1] = np.nan if size % 2 else np.inf
        room = np.full(size + 2, MARK, dtype)
        out = room[1:-1]
        out[...] = rng.standard_normal(size).astype(dtype)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        total = total + np.float32(0)
        expected = (total + out.astype(np.float32) if accumulate else total).astype(dtype)
        add_up(ISAS[isa], terms, out, name, accumulate)
        assert_same_bits(out, expected, (size, number, accumulate))
        assert room[0] == room[-1] == MARK


def test_a_call_takes_so_many_elements_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.engines.llvm.added.MAX_ELEMENTS", 96)
    terms = [np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)]
    out = np.full(1000, np.nan, FORMATS["f16"].dtype)
    add_up(ISAS[HOST[0]], terms, out, "f16", False)
    assert out.tolist() == list(range(1, 1001))


@pytest.mark.parametrize("isa", ISAS)
def test_it_is_compiled_for_every_instruction_set(isa: str) -> None:
    assert "add:" in jit.assembly(module_of(ISAS[isa], "bf16", True), ISAS[isa])
