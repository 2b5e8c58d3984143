"""The terms of an element are those that the oracle sums; products of matrices are computed in blocks."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from convgrad.functional.call import prepare
from convgrad.notation import calls, read
from convgrad.spec import exact_result
from convgrad.spec.geometry import Axis
from convgrad.verify import rows, sums
from convgrad.verify.terms import MEETINGS, terms_of

LINES = (
    "FWD_B f32 NXC g2mb2ic4ih5iw7oc6kh3kw2sh2sw1ph1pw1dh1",
    "BWD_D f32 NCX g2mb2ic4ih5iw7oc6kh3kw2sh2sw1ph1pw1dh1",
    "BWD_W f32 NXC g2mb2ic4ih5iw7oc6kh3kw2sh2sw1ph1pw1dh1",
    "BWD_WB f32 NXC mb2ic4iw7oc6kw3pw3",
    "deconv FWD_D f32 NXC g2mb2ic4ih5oc6oh11kh3sh2",
    "deconv BWD_D f32 NXC g2mb2ic4ih5oc6oh11kh3sh2",
    "deconv BWD_W f32 NXC g2mb2ic4ih5oc6oh12kh3sh2",
    "FWD_D f32 NXC mb1ic2id3ih2iw3oc3kd2kh2kw2pd1ph1pw1",
)


@pytest.mark.parametrize("line", LINES)
def test_every_element_is_the_sum_of_its_terms(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all elements at once, gathered together and one by one, they are the same, and zeros."""
    for call in calls(read(line)):
        shapes = call.shapes
        made = [np.random.default_rng(at).integers(-8, 9, shape).astype(np.float32) for at, shape in enumerate(shapes)]
        if call.operator.endswith("Weights") or (len(shapes) == 3 and "Data" in call.operator):
            made[2] = shapes[2]  # type: ignore[call-overload]
        prepared = prepare(call.operator, tuple(made), dict(call.attributes))
        problem, operands = prepared.problem, prepared.operands
        answer = exact_result.evaluate(problem, operands)
        places = list(np.ndindex(answer.value.shape))
        x, y = rows.rows_of(problem, operands, places)
        for row, index in enumerate(places):
            terms = terms_of(problem, operands, index)
            assert terms.products.sum() + sum(terms.added) == answer.value[index]
            assert prod(terms.x.shape) == answer.terms[index]
            box = tuple(map(slice, terms.x.shape))
            for values, own in ((x[row], terms.x), (y[row], terms.y)):
                assert np.array_equal(values[box], own)
                assert np.abs(values).sum() == np.abs(own).sum()  # what is beyond is 0
            assert terms.x.shape == terms.y.shape
        with monkeypatch.context() as patched:
            patched.setattr(rows, "LONG", 0)
            apart = rows.rows_of(problem, operands, places)
        assert all(map(np.array_equal, apart, (x, y)))


@pytest.mark.parametrize("scale", [1, 2**31, 2**62, 2**63 - 1, 2**80])
def test_positions_and_taps_that_meet(scale: int) -> None:
    """Diagnoses multiply attributes, so that they may have more than 64 bits."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        src, dst, kernel, stride, dilation, pad, shift = (int(n) for n in rng.integers(1, 5, 7))
        axis = Axis(src, dst, kernel, stride * scale, dilation * scale, pad * scale - (shift - 1))
        met = {(k, i, p) for k, i, p in np.ndindex(kernel, src, dst) if _meet(axis, k, i, p)}
        for k in range(kernel):
            of_tap = {(i, p) for tap, i, p in met if tap == k}
            assert {*zip(*exact_result._meetings(axis, k), strict=True)} == of_tap
            assert {*zip(*MEETINGS["weights"](axis, k), strict=True)} == of_tap
        for p in range(dst):
            assert {*zip(*MEETINGS["dst"](axis, p), strict=True)} == {(i, k) for k, i, at in met if at == p}
        for i in range(src):
            assert {*zip(*MEETINGS["src"](axis, i), strict=True)} == {(p, k) for k, at, p in met if at == i}


def _meet(axis: Axis, k: int, i: int, p: int) -> bool:
    return i == p * axis.stride + k * axis.dilation - axis.pad_begin


@pytest.mark.parametrize("shape", [(3, 70, 256, 65), (1, 1, 256, 2000), (2, 2000, 7, 1), (1, 5, 1, 6), (1, 0, 4, 3)])
def test_products_in_blocks(shape: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of integers are exact, so the blocks of one thread give the bits of one large product."""
    groups, rows, terms, columns = shape
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (groups, *each)).astype(float) for each in ((rows, terms), (terms, columns)))
    for alone in (sums.ALONE, 1000):
        monkeypatch.setattr(sums, "ALONE", alone)
        assert np.array_equal(sums._products(x, y), x @ y)
