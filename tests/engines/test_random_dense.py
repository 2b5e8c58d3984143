"""The generated engine against the oracle on random dense weight gradients: the bits on integers, the bound on normals.

A chunk of problems, one seed, shares types, instruction set and a few channel counts, so that it compiles few kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from convgrad import run
from convgrad.formats import FORMATS, Format
from convgrad.verify.fill import Kind
from tests.engines.runs import CHANNELS, assert_bounded, assert_exact, refuse_numpy, run_anyhow
from tests.support.classes import ALL_TYPES, CLASSES, any_case, draw
from tests.support.engine_helpers import HOST
from tests.support.helpers import Case, assert_same_bits

QUICK = 1  # chunks
NORMAL, INTEGERS = range(100, 200), range(100, 175)  # chunks of the long tier
MULTIPLY_ADDS, ELEMENTS = 3_000_000, 100_000
MIXED = ("dense", "dense", "pointwise")


@dataclass(frozen=True)
class Family:
    """What the problems of one chunk share."""

    operand: Format
    output: Format
    isa: str
    channels: tuple[int, ...]  # of a group


def family_of(seed: int) -> Family:
    rng = np.random.default_rng([31, seed])
    operand, output = (FORMATS[ALL_TYPES[n % len(ALL_TYPES)]] for n in (seed, seed // len(ALL_TYPES)))
    return Family(operand, output, HOST[seed % len(HOST)], tuple(map(int, rng.choice(CHANNELS, 2, replace=False))))


def cases_of(family: Family, rng: np.random.Generator) -> Iterator[Case]:
    """Yield calls of dense layers and pointwise ones without end, of the family's types and channels."""
    rows = [replace(CLASSES[name], inner=family.channels, outer=family.channels) for name in MIXED]
    drawn = [draw(row, rng, MULTIPLY_ADDS, most_elements=ELEMENTS) for row in rows]
    while True:
        yield any_case(next(drawn[rng.integers(len(drawn))]), rng, family.operand, family.output)


# -- the figures, printed at the end with -s ---------------------------------------------------------------------------

_largest: dict[str, float] = {}
_problems = {"normal": 0, "integers": 0}
_elements = {"normal": 0, "integers": 0}
_wrong = {"normal": 0, "integers": 0}


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    for kind, problems in _problems.items():
        print(f"\n{problems} problems on {kind}, {_elements[kind]} elements; {_wrong[kind]} problems wrong", end="")
    for output, share in sorted(_largest.items()):
        print(f"\n  largest error of {output} results: {share:.4g} of its bound", end="")


@pytest.fixture(autouse=True)
def only_the_generated_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_numpy(monkeypatch)


def run_chunk(seed: int, kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Assert on ``count`` problems of a family; return the largest error over its bound."""
    family, rng = family_of(seed), np.random.default_rng([32, seed, kind == "normal"])
    monkeypatch.setenv("CONVGRAD_MAX_ISA", family.isa)
    shares, wrong = [0.0], []
    for case in islice(cases_of(family, rng), count):
        one = run_anyhow(case, rng, kind, family.isa)
        try:
            shares.append(assert_exact(one) if kind == "integers" else assert_bounded(one))
        except AssertionError as error:
            wrong.append(str(error))
        _problems[kind] += 1
        _elements[kind] += one.result.size
    _wrong[kind] += len(wrong)
    largest = max(shares)
    if kind == "normal":
        _largest[family.output.name] = max(largest, _largest.get(family.output.name, 0.0))
    assert not wrong, f"{len(wrong)} of {count} problems are wrong; {wrong[0]}"
    return largest


@pytest.mark.parametrize("seed", range(QUICK))
def test_normal_numbers_keep_the_bound(seed: int, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    record_property("largest error over bound", run_chunk(seed, "normal", 50, monkeypatch))


@pytest.mark.parametrize("seed", range(QUICK))
def test_integers_give_the_bits_of_the_oracle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(seed, "integers", 33, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", NORMAL)
def test_20000_on_normal_numbers(seed: int, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    record_property("largest error over bound", run_chunk(seed, "normal", 200, monkeypatch))


@pytest.mark.long
@pytest.mark.parametrize("seed", INTEGERS)
def test_5000_on_integers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(seed, "integers", 70, monkeypatch)


def test_the_chunks_cover_every_type_and_instruction_set() -> None:
    families = [family_of(s) for s in INTEGERS]
    covered = {(f.operand.name, f.output.name, f.isa) for f in families}
    assert covered == set(product(ALL_TYPES, ALL_TYPES, HOST))


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that lost one term of average size is beyond the bound."""
    family = replace(family_of(0), operand=FORMATS["f32"], output=FORMATS["f32"])
    monkeypatch.setenv("CONVGRAD_MAX_ISA", family.isa)
    rng = np.random.default_rng(5)
    one = run_anyhow(next(cases_of(family, rng)), rng, "normal", family.isa)
    lost, worst = one.result.copy(), np.argmax(one.answer.terms)
    lost.flat[worst] += np.float32(one.answer.magnitude.flat[worst] / one.answer.terms.flat[worst])
    with pytest.raises(AssertionError, match=r"1 of .* elements beyond the bound"):
        assert_bounded(replace(one, result=lost))


@pytest.mark.parametrize("fmt", ALL_TYPES)
@pytest.mark.parametrize("positions", [(40, 1), (2, 20, 1), (40, 2)])
def test_positions_whose_last_axis_tells_another_step(positions: tuple[int, ...], fmt: str) -> None:
    """A pointwise layer whose last axis, of one position, has a stride of one element, the others a larger one."""
    rng = np.random.default_rng(3)
    shape = (2, 5, *positions)
    wide = np.full((*shape[:-1], 3), np.nan, FORMATS[fmt].dtype)
    wide[..., : shape[-1]] = rng.integers(-4, 5, shape)
    sliced = wide[..., : shape[-1]]
    plain = sliced.copy()
    attributes = {"strides": [1] * len(positions), "dilations": [1] * len(positions), "data_format": "NCX",
                  "weights_format": "OIX"}  # fmt: skip
    expected = run("ConvolutionBackwardWeights", plain, plain, (5, 5, *[1] * len(positions)), **attributes)
    for src, dst in ((sliced, plain), (plain, sliced), (sliced, sliced)):
        got = run("ConvolutionBackwardWeights", src, dst, (5, 5, *[1] * len(positions)), **attributes)
        assert_same_bits(got, expected, (src.strides, dst.strides))
