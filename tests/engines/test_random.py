"""Random problems against the oracle: bits on integers, the bound on normal numbers.

Of every operator; of all classes of weight gradients; of dense ones, whose chunks share types and a few channels; and
those of campaigns/classes.py: depthwise, small groups, thin layers, long rows, on generated kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np
import pytest

from campaigns.classes import BIASED, CHUNK, SHARED, TILED, Tally
from campaigns.classes import run_chunk as run_special
from convgrad import run
from convgrad.formats import FORMATS, Format
from convgrad.verify.fill import Kind
from tests.engines.runs import CHANNELS, assert_bounded, assert_exact, problems_of, refuse_numpy, run_anyhow
from tests.support import helpers
from tests.support.classes import ALL_TYPES, CLASSES, any_case, draw
from tests.support.engine_helpers import HOST
from tests.support.helpers import Case, assert_same_bits, random_case
from tests.support.tiers import tiers

KINDS: tuple[Kind, ...] = ("integers", "normal")
PAIRS = (("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"))
QUICK_SEEDS = (0, 7, 2)  # of classes: three pairs of types and both instruction sets
LONG = {"normal": range(100, 200), "integers": range(100, 175)}  # chunks
SPECIAL = {"normal": range(100, 180), "integers": range(200, 275)}
MULTIPLY_ADDS, ELEMENTS = 3_000_000, 100_000  # of dense problems

needs_kernels = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@pytest.mark.every(5)
@tiers("kind, seed", product(KINDS, range(4)), long=product(KINDS, range(100, 150)))  # fmt: skip
def test_every_operator(kind: Kind, seed: int) -> None:
    rng = np.random.default_rng([KINDS.index(kind) + 1, seed])
    few, many = {"integers": (12, 100), "normal": (18, 400)}[kind]
    for number in range(few if seed < 100 else many):
        (helpers.assert_exact if kind == "integers" else helpers.assert_bounded)(random_case(rng), number)


def assert_all(
    cases: Iterable[Case], rng: np.random.Generator, kind: Kind, isa: str, patch: pytest.MonkeyPatch
) -> None:
    """Assert on calls, which the generated engine computes on an instruction set."""
    refuse_numpy(patch)
    patch.setenv("CONVGRAD_MAX_ISA", isa)
    for case in cases:
        one = run_anyhow(case, rng, kind, isa)
        (assert_exact if kind == "integers" else assert_bounded)(one)


# -- classes of weight gradients ---------------------------------------------------------------------------------------


def run_class(name: str, seed: int, kind: Kind, count: int, patch: pytest.MonkeyPatch) -> None:
    """Assert on problems of a class that share types and instruction set."""
    row, pair = divmod(seed, len(PAIRS))
    operand, output = (FORMATS[fmt] for fmt in PAIRS[pair])
    rng = np.random.default_rng([62, list(CLASSES).index(name), seed])
    cases = (any_case(conv, rng, operand, output) for conv in problems_of(name, seed, count))
    assert_all(cases, rng, kind, HOST[row % len(HOST)], patch)


@needs_kernels
@tiers("name, kind", list(CLASSES), KINDS, every=17)
def test_classes(name: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    run_class(name, QUICK_SEEDS[list(CLASSES).index(name) % len(QUICK_SEEDS)], kind, 4, monkeypatch)


@needs_kernels
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seed"), [*product(["normal"], range(100, 125)), *product(["integers"], range(100, 107))]
)
@pytest.mark.parametrize("name", CLASSES)
def test_50000_of_classes(name: str, kind: Kind, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_class(name, seed, kind, 100, monkeypatch)


# -- dense weight gradients --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """What the problems of one chunk share, so that it compiles few kernels."""

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
    rows = [replace(CLASSES[name], inner=family.channels, outer=family.channels) for name in ("dense", "pointwise")]
    drawn = [draw(row, rng, MULTIPLY_ADDS, most_elements=ELEMENTS) for row in rows]
    while True:
        yield any_case(next(drawn[rng.integers(3) // 2]), rng, family.operand, family.output)


@needs_kernels
@tiers("kind, seed", [(kind, 0) for kind in KINDS], long=[(kind, seed) for kind in KINDS for seed in LONG[kind]])
def test_dense_layers(kind: Kind, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = {"normal": (15, 200), "integers": (10, 70)}[kind]
    family, rng = family_of(seed), np.random.default_rng([32, seed, kind == "normal"])
    assert_all(islice(cases_of(family, rng), many if seed else few), rng, kind, family.isa, monkeypatch)


@needs_kernels
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


@pytest.mark.every(7)
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


# -- special classes, by the generated engine --------------------------------------------------------------------------

QUICK = [("integers", SHARED.index(("f8_e4m3", "f8_e5m2", isa))) for isa in HOST[:1]]


@needs_kernels
@tiers("kind, chunk", QUICK, long=[(kind, chunk) for kind in KINDS for chunk in SPECIAL[kind]])
def test_special_classes(kind: Kind, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_numpy(monkeypatch)
    tally, count = Tally(), len(BIASED) if (kind, chunk) in QUICK else CHUNK
    run_special(chunk, kind, count, tally)
    assert not tally.wrong, f"{len(tally.wrong)} of {count} problems are wrong; {tally.wrong[0]}"
    assert tally.classes.keys() == BIASED.keys()
    assert tally.roles.keys() == {"dst", "src", "weights"}


@needs_kernels
@tiers("kind, chunk", [("normal", 7)], long=[(kind, chunk) for kind in KINDS for chunk in range(100, 150)])
def test_layers_of_tiles(kind: Kind, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any ``max_error``, bias, old values and activation."""
    refuse_numpy(monkeypatch)
    tally, count = Tally(), 60 if chunk >= 100 else 6
    run_special(chunk, kind, count, tally, TILED)
    assert not tally.wrong, f"{len(tally.wrong)} of {count} problems are wrong; {tally.wrong[0]}"
    assert tally.classes.keys() == TILED.keys()
    assert sum(n for words, n in tally.ways.items() if words.endswith("by tiles")) > count // 4


@needs_kernels
def test_the_long_tier_has_all_types_and_instruction_sets() -> None:
    for chunks in SPECIAL.values():
        assert {SHARED[chunk % len(SHARED)] for chunk in chunks} == set(SHARED)
    families = [family_of(seed) for seed in LONG["integers"]]
    assert {(one.operand.name, one.output.name, one.isa) for one in families} == set(
        product(ALL_TYPES, ALL_TYPES, HOST)
    )
