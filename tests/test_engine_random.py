"""The generated engine against the oracle on random dense weight gradients: the bits on integers, the bound on normals.

A chunk of problems, one seed, shares types, instruction set and a few channel counts, so that it compiles few kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from convgrad import run
from convgrad.formats import FORMATS, Format
from convgrad.spec.geometry import effective_kernel, transposed_pad_total
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import Operator
from convgrad.verify.fill import Kind
from engine_helpers import HOST, WEIGHTS
from engine_runs import Ran, assert_bounded, assert_exact, refuse_numpy, run_anyhow
from helpers import Case, assert_same_bits

QUICK = 3  # chunks
NORMAL, INTEGERS = range(100, 200), range(100, 150)  # chunks of the long tier
TYPES = ("f32", "bf16", "f16")
CHANNELS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65]
EXTENTS = {1: 40, 2: 14, 3: 7, 4: 4}  # most positions of an axis, by the number of axes,
LARGE_EXTENTS = {1: 700, 2: 26, 3: 9, 4: 5}  # and of images that are more than one block
MULTIPLY_ADDS, ELEMENTS, TAPS = 3_000_000, 100_000, 100


@dataclass(frozen=True)
class Family:
    """What the problems of one chunk share."""

    operand: Format
    output: Format
    isa: str
    channels: tuple[int, ...]  # of a group


def family_of(seed: int) -> Family:
    rng = np.random.default_rng([31, seed])
    operand, output = (FORMATS[TYPES[n % len(TYPES)]] for n in (seed, seed + seed // len(TYPES)))
    return Family(operand, output, HOST[seed % len(HOST)], tuple(map(int, rng.choice(CHANNELS, 2, replace=False))))


def random_weights_case(rng: np.random.Generator, family: Family) -> Case:
    """Return a random legal weight gradient under any of its names, not empty, and small enough for the oracle."""
    op = WEIGHTS[rng.integers(len(WEIGHTS))]
    while True:
        case = _random_weights_case(rng, op, family)
        if case is not None:
            return case


def _random_weights_case(rng: np.random.Generator, op: Operator, family: Family) -> Case | None:
    """Draw by the underlying convolution: its dst extents first, then src extents that fit them."""
    axes = int(rng.integers(1, 5))
    most = LARGE_EXTENTS[axes] if rng.random() < 0.25 else EXTENTS[axes]
    dst = rng.integers(1, most + 1, axes)
    kernel, strides, dilations = (rng.integers(1, high, axes) for high in (min(8, most + 2), 5, 4))
    if rng.random() < 0.3:
        kernel, dilations = kernel * 0 + 1, dilations * 0 + 1
    pads_begin, pads_end = rng.integers(0, 6, axes), rng.integers(0, 6, axes)
    auto_pad = str(rng.choice(["none", "same_upper", "same_lower", "valid"], p=[0.55, 0.15, 0.15, 0.15]))
    rest = np.array(
        [rng.integers(0, max(s, d) if op.transposed else s) for s, d in zip(strides, dilations, strict=True)]
    )
    src = []
    for x in range(axes):
        s, e = int(strides[x]), effective_kernel(int(kernel[x]), int(dilations[x]))
        fitting = s * (int(dst[x]) - 1) + e + int(rest[x])
        same = transposed_pad_total(e, s) if op.transposed else e - 1  # with the latter s(O - 1) + 1 + rest
        src.append(fitting - {"none": int(pads_begin[x] + pads_end[x]), "valid": 0}.get(auto_pad, same))
    groups, batch = int(rng.choice([1, 1, 1, 2, 3, 5])), int(rng.choice([1, 2, 3, 5, 17, 40]))
    inner, outer = (int(n) for n in rng.choice(family.channels, 2))
    shapes = {
        "src": (batch, groups * inner, *src),
        "dst": (batch, groups * outer, *map(int, dst)),
        "weights": (groups * outer, inner, *map(int, kernel)),
    }
    if min(src) < 1 or max(map(np.prod, shapes.values())) > ELEMENTS or np.prod(kernel) > TAPS:
        return None
    if batch * np.prod(dst) * np.prod(shapes["weights"]) > MULTIPLY_ADDS:
        return None
    weights_format = op.attribute("weights_format")
    assert weights_format is not None
    data_layout, weights_layout = (str(rng.choice(choices)) for choices in (["NXC", "NCX"], weights_format.choices))
    lying = {t: from_canonical(s, weights_layout if t == "weights" else data_layout) for t, s in shapes.items()}
    attributes: dict[str, Any] = {
        "strides": strides.tolist(), "dilations": dilations.tolist(), "groups": groups, "auto_pad": auto_pad,
        "data_format": data_layout, weights_format.name: weights_layout,
    }  # fmt: skip
    if auto_pad == "none" or rng.random() < 0.3:
        attributes |= {"pads_begin": pads_begin.tolist(), "pads_end": pads_end.tolist()}
    if op.transposed and rng.random() < 0.5:
        attributes["output_padding"] = rest.tolist()
    dtype = None if family.output is family.operand else family.output.name
    ports = op.operands
    if not ports[-1].required and rng.random() < 0.5:  # the shape as attribute
        shape = next(a for a in op.attributes if a.means == "weights_shape")
        attributes[shape.name] = list(lying["weights"])
        ports = ports[:-1]
    return Case(op, tuple(lying[p.tensor] for p in ports), attributes, family.operand, dtype)


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


def random_run(rng: np.random.Generator, family: Family, kind: Kind) -> Ran:
    return run_anyhow(random_weights_case(rng, family), rng, kind, family.isa)


def run_chunk(seed: int, kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Assert on ``count`` problems of a family; return the largest error over its bound."""
    family, rng = family_of(seed), np.random.default_rng([32, seed, kind == "normal"])
    monkeypatch.setenv("CONVGRAD_MAX_ISA", family.isa)
    shares, wrong = [0.0], []
    for _ in range(count):
        one = random_run(rng, family, kind)
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
    record_property("largest error over bound", run_chunk(seed, "normal", 100, monkeypatch))


@pytest.mark.parametrize("seed", range(QUICK))
def test_integers_give_the_bits_of_the_oracle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(seed, "integers", 67, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", NORMAL)
def test_20000_on_normal_numbers(seed: int, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    record_property("largest error over bound", run_chunk(seed, "normal", 200, monkeypatch))


@pytest.mark.long
@pytest.mark.parametrize("seed", INTEGERS)
def test_5000_on_integers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(seed, "integers", 100, monkeypatch)


def test_the_chunks_cover_every_type_and_instruction_set() -> None:
    families = [family_of(s) for s in INTEGERS]
    covered = {(f.operand.name, f.output.name, f.isa) for f in families}
    assert covered == set(product(TYPES, TYPES, HOST))


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that lost one term of average size is beyond the bound."""
    family = replace(family_of(0), operand=FORMATS["f32"], output=FORMATS["f32"])
    monkeypatch.setenv("CONVGRAD_MAX_ISA", family.isa)
    one = random_run(np.random.default_rng(5), family, "normal")
    lost, worst = one.result.copy(), np.argmax(one.answer.terms)
    lost.flat[worst] += np.float32(one.answer.magnitude.flat[worst] / one.answer.terms.flat[worst])
    with pytest.raises(AssertionError, match=r"1 of .* elements beyond the bound"):
        assert_bounded(replace(one, result=lost))


@pytest.mark.parametrize("fmt", TYPES)
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
