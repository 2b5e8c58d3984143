"""An element's certificate: what it states is what the reference and the verdict say, and a changed one is refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from fractions import Fraction
from math import nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.errors import InvalidShapeError, UnsupportedError
from convgrad.formats import ACCUMULATIONS, FORMATS
from convgrad.functional.call import Prepared, prepare
from convgrad.verify import check_certificate
from convgrad.verify.bound import bound_of
from convgrad.verify.cases.collection import read
from convgrad.verify.certificate import certificate
from convgrad.verify.check import verdict_on
from convgrad.verify.declared import Declared, declared
from convgrad.verify.reference import certify
from tests.support.judging import inputs_of
from tests.support.tiers import tiers

CHECKER = Path(check_certificate.__file__)
LINES = (
    "plain g2mb2ic4ih5iw4oc6kh3kw2sh2sw1ph1pw1 types=f32,bf16,f16,f64 layouts=NXC",
    "up deconv g2mb2ic4ih3iw4oc6kh3kw2sh2sw1ph1pw0 types=f32,bf16,f16,f64 layouts=NCX",
    "bias mb2ic3ih4oc5kh3ph1 roles=FWD_B,BWD_WB types=f32,f16 layouts=NXC",
)
CASES = [case for line in LINES for case in read(f"{line} # of this test", "here")]


def called(case: Any, kind: Any = "normal") -> tuple[Prepared, np.ndarray, Declared]:
    inputs = inputs_of(case, kind)
    prepared = prepare(case.operator, inputs, case.attributes)
    got = np.array(convgrad.run(case.operator, *inputs, **case.attributes))
    return prepared, got, declared(case.operator, case.operand_format)


def row(src: np.ndarray, weights: np.ndarray) -> Prepared:
    """Return a forward of one tap."""
    return prepare("Convolution", (src, weights), {"strides": [1], "dilations": [1]})


def concluded(call: Prepared, got: np.ndarray, how: Declared, index: tuple[int, ...] = (0, 0, 0)) -> dict[str, Any]:
    found: dict[str, Any] = certificate(call, index, got, how)["conclusions"]
    return found


def test_products_of_zero_are_not_rounded() -> None:
    """A certificate counts the roundings as the bound does."""
    src = np.array([1 / 3, 0, 1 / 5, 0, -1 / 7], np.float32).reshape(1, 5, 1)
    call = prepare(
        "ConvolutionBackwardWeights",
        (src, np.ones_like(src)),
        {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]},
    )
    how = declared("ConvolutionBackwardWeights", call.problem.operand_format)
    one = concluded(call, np.array([[[0.39]]], np.float32), how)
    bound = Fraction(one["bound"])
    assert bound == Fraction(3, 2**24 - 3) * Fraction(one["magnitude"]) + 5 * Fraction(1, 2**150) * (
        1 + Fraction(3, 2**24 - 3)
    )


def some(shape: tuple[int, ...], count: int = 4) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [tuple(int(rng.integers(extent)) for extent in shape) for _ in range(count)]


@tiers("kind, case", ["normal", "adversarial", "integers"], CASES, every=15)
def test_what_is_concluded_is_what_the_reference_says(case: Any, kind: Any) -> None:
    prepared, got, how = called(case, kind)
    reference = certify(prepared.problem, prepared.operands)
    rounded = reference.rounded(prepared.problem.output_format)
    for index in some(got.shape):
        one = json.loads(json.dumps(certificate(prepared, index, got, how)))
        at = tuple(index[axis] for axis in prepared.problem.output_order)
        found = one["conclusions"]
        assert (found["verdict"], check_certificate.disagreements(one, {})) == ("inside", [])
        assert len(one["terms"]["x"]) == reference.terms[at]
        assert abs(Fraction(found["exact"]) - Fraction(reference.value[at])) <= reference.error[at]
        assert Fraction(found["magnitude"]) == pytest.approx(Fraction(reference.magnitude[at]))
        if Fraction(found["exact"]) == reference.value[at]:
            assert float(check_certificate.rounded(Fraction(found["exact"]), case.operand_format.name)) == rounded[at]
        assert float(Fraction(found["candidate"])) == got[index]
        assert found["share"] <= 1


@pytest.mark.every(2)
@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_the_first_value_beyond_is_where_the_verdict_has_it(case: Any) -> None:
    """Of values from the exact one outwards; the reference's own error is so small that it moves none of them."""
    prepared, got, how = called(case)
    index, fmt = some(got.shape, 1)[0], prepared.problem.output_format
    reference = certify(prepared.problem, prepared.operands)
    one = concluded(prepared, got, how, index)
    exact, bound = Fraction(one["exact"]), Fraction(one["bound"])
    last = check_certificate.rounded(exact + bound, fmt.name)
    for value, verdict in ((float(last), "inside"), (next_number(float(last), fmt.dtype), "beyond")):
        other = got.copy()
        other[index] = value
        assert concluded(prepared, other, how, index)["verdict"] == verdict
        if fmt.name != "f64":
            mask = verdict_on(other, prepared, how, reference=reference).mask
            assert mask is not None
            assert mask[index] == (verdict == "beyond")


def next_number(value: float, dtype: np.dtype[Any]) -> float:
    if dtype == np.float64:
        return nextafter(value, np.inf)
    return float(np.nextafter(dtype.type(value), dtype.type(np.inf)))


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16", "f64"])
def test_bits_are_read_as_numpy_reads_them(fmt: str) -> None:
    dtype, width = FORMATS[fmt].dtype, FORMATS[fmt].itemsize * 8
    rng = np.random.default_rng(0)
    bits = [*rng.integers(0, 2**63, 200).tolist(), 0, 1, 2**63, 2**62, 2**64 - 1]
    for pattern in (value >> (64 - width) if value >= 2**width else value for value in bits):
        array = np.array([pattern], f"u{dtype.itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # a signalling NaN
            expected = float(array.astype(np.float64)[0])
        assert float(check_certificate.decoded(hex(pattern), fmt)) == pytest.approx(expected, nan_ok=True, rel=0, abs=0)


def test_infinities_and_nans() -> None:
    src = np.array([1, np.inf, 2, np.nan], np.float32).reshape(1, 4, 1)
    weights = np.ones((1, 1, 1), np.float32)
    prepared = row(src, weights)
    how = declared("Convolution", prepared.problem.operand_format)
    verdicts = {
        value: [concluded(prepared, np.full((1, 4, 1), value, np.float32), how, (0, p, 0))["verdict"] for p in range(4)]
        for value in (1.0, np.inf, -np.inf, np.nan)
    }
    assert list(verdicts.values()) == [
        ["inside", "beyond", "beyond", "beyond"],
        ["beyond", "inside", "beyond", "beyond"],
        ["beyond", "beyond", "beyond", "beyond"],
        ["beyond", "beyond", "beyond", "inside"],
    ]


def test_declared_heights_and_overflow() -> None:
    """A smaller height has a smaller bound; blocks are chains that are joined; nothing is known where sums overflow."""
    src, weights = np.full((1, 1, 64), 0.1, np.float32), np.full((1, 64, 1), 0.1, np.float32)
    prepared = row(src, weights)
    got = np.full((1, 1, 1), 0.64, np.float32)
    f32 = FORMATS["f32"]
    hows = (Declared(f32, 2), Declared(f32, None, (16,) * 4), Declared(f32), Declared(f32, 2**24))
    ones = [concluded(prepared, got, how) for how in hows]
    magnitude = Fraction(ones[0]["magnitude"])
    for one, height in zip(ones, (2, 19, 64, 64), strict=True):
        assert Fraction(one["bound"]) > Fraction(height, 2**24) * magnitude
        assert Fraction(one["bound"]) < Fraction(height + 1, 2**24) * magnitude
    long = concluded(prepared, got, Declared(ACCUMULATIONS["f8_e5m2"]))  # of so many terms that h u >= 1
    assert long["verdict"] == "inside"
    assert Fraction(long["bound"]) == (
        Fraction(66 * 9, 64) * magnitude + 64 * Fraction(1, 2**17) * (1 + Fraction(66 * 9, 64))
    )
    huge = row(src * np.float32(3e38), 20 * weights)
    assert concluded(huge, got, hows[0])["verdict"] == "undecided"


def test_an_error_beyond_every_number() -> None:
    prepared = row(np.full((1, 1, 1), 1e-160), np.full((1, 1, 1), 1e-160))
    one = certificate(prepared, (0, 0, 0), np.full((1, 1, 1), 1e300), Declared(FORMATS["f64"]))
    assert (one["conclusions"]["share"], one["conclusions"]["verdict"]) == (None, "beyond")
    assert check_certificate.disagreements(json.loads(json.dumps(one)), {}) == []


@pytest.mark.parametrize(("bits", "verdict"), [("7f", "inside"), ("7e", "beyond")])
def test_beyond_the_largest_number_of_f8_e4m3(bits: str, verdict: str) -> None:
    """NaN, which stands for infinity; 448 is wrong."""
    fmt = FORMATS["f8_e4m3"].dtype
    src, weights = np.full((1, 1, 2), 240, fmt), np.full((1, 2, 1), 240, fmt)
    prepared = row(src, weights)
    got = np.full((1, 1, 1), int(bits, 16), np.uint8).view(fmt)
    assert concluded(prepared, got, Declared(FORMATS["f32"]))["verdict"] == verdict


@pytest.mark.parametrize("fmt", ACCUMULATIONS.values(), ids=str)
def test_the_bound_in_every_accumulation(fmt: Any) -> None:
    """Of two terms near the largest number, too: some of f8_e4m3's largest binade stand for NaN."""
    for size in (0.1, fmt.largest / 2 ** (fmt.significand_bits + 1), fmt.largest / 2, fmt.largest / 1.9):
        if size > FORMATS["f32"].largest:
            continue
        src, weights = np.array([[[size, size / 64]]], np.float32), np.ones((1, 2, 1), np.float32)
        prepared = row(src, weights)
        how = Declared(fmt)
        wanted = bound_of(certify(prepared.problem, prepared.operands), prepared.problem, how, prepared.operands)[
            0, 0, 0
        ]
        found = concluded(prepared, src[..., :1], how)
        assert float(Fraction(found["bound"]) if found["bound"] != "inf" else np.inf) == pytest.approx(wanted, rel=1e-9)
        assert check_certificate.largest(fmt.name) == fmt.largest


def raw_of(one: Any, prepared: Prepared, old: np.ndarray | None = None) -> dict[str, bytes]:
    raw = {name: array.tobytes() for name, array in prepared.taken.items()}
    return raw if old is None else {**raw, "old": old.tobytes()}


@tiers("case", CASES, every=9)
@pytest.mark.parametrize("adds", [False, True])
def test_terms_are_those_of_the_operands(case: Any, adds: bool) -> None:
    inputs = inputs_of(case, "normal")
    prepared = prepare(case.operator, inputs, case.attributes, accumulate=adds)
    old = np.random.default_rng(0).standard_normal(prepared.problem.output_shape).astype(case.output_format.dtype)
    got = convgrad.run(
        case.operator, *inputs, **case.attributes, **({"out": old.copy(), "accumulate": True} if adds else {})
    )
    how = declared(case.operator, case.operand_format)
    for index in some(got.shape):
        one = json.loads(json.dumps(certificate(prepared, index, got, how, old if adds else None)))
        raw = raw_of(one, prepared, old if adds else None)
        assert check_certificate.disagreements(one, raw) == []
        for key in ("x", "y", "added"):
            if one["terms"][key]:
                assert f"terms {key}: not as" in refused(one, raw, "terms", key, 0, to="0x1.8p+0")
        if one["geometry"]["axes"]:
            for field in ("stride", "dilation", "pad_begin"):
                assert refused(one, raw, "geometry", "axes", 0, field, to=7)
            for field in ("src", "dst", "weights"):
                assert refused(one, raw, "geometry", "axes", 0, field, to=9) or field == prepared.problem.output
            assert refused(one, raw, "attributes", "groups", to=7)
        for other in (-1, 9):
            assert refused(one, raw, "index", len(index) - 1, to=other)
        raw["src" if "src" in raw else next(iter(raw))] += bytes(1)
        assert check_certificate.disagreements(one, raw)


def refused(one: Any, raw: dict[str, bytes], *keys: Any, to: Any) -> str:
    """What is said of a certificate with another value, whose conclusions follow from its terms."""
    other = copy.deepcopy(one)
    inner: Any = other
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    other["conclusions"] = check_certificate.conclusions(other)
    try:
        return "; ".join(check_certificate.disagreements(other, raw))
    except (ValueError, LookupError) as error:
        return str(error)


def test_what_cannot_be_certified() -> None:
    prepared, got, how = called(CASES[0])
    with pytest.raises(
        InvalidShapeError, match=r"index must be inside the shape \(2, 3, 5, 6\) of the result; got \(2, 0"
    ):
        certificate(prepared, (2, 0, 0, 0), got, how)
    with pytest.raises(UnsupportedError, match="a certificate is of a sum of products"):
        certificate(prepared, (0, 0, 0, 0), got, Declared(how.accumulation, algorithm="winograd"))


def test_a_file_is_checked_by_plain_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In isolated mode, so without convgrad; then with the operands' bytes, then with everything changed in turn."""
    prepared, got, how = called(CASES[0])
    index = some(got.shape, 1)[0]
    one = certificate(prepared, index, got, how)
    path, raw = tmp_path / "one.json", tmp_path / "src.bin"
    path.write_text(json.dumps(one))
    raw.write_bytes(prepared.taken["src"].tobytes())
    command = [sys.executable, "-I", str(CHECKER), str(path), f"src={raw}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    follows = f"element {list(index)} of Convolution: inside; everything that is stated follows"
    assert run.stdout == f"{follows} from the terms. Give weights=RAW_FILE to compare the terms with the operands\n"
    weights = tmp_path / "weights.bin"
    weights.write_bytes(prepared.taken["weights"].tobytes())
    run = subprocess.run([*command, f"weights={weights}"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{follows}\n", "")
    raw.write_bytes(prepared.taken["weights"].tobytes())
    assert check_certificate.main([str(path), f"src={raw}"]) == 1

    def changed(*keys: Any, to: Any) -> dict[str, Any]:
        other = copy.deepcopy(one)
        inner: Any = other
        for key in keys[:-1]:
            inner = inner[key]
        assert inner[keys[-1]] != to
        inner[keys[-1]] = to
        return other

    for key in one["conclusions"]:
        assert check_certificate.disagreements(changed("conclusions", key, to="1/3"), {})
    for keys, to in (
        (("terms", "x", 0), "0x1.8p+0"),
        (("terms", "added"), ["0x1p-3"]),
        (("candidate", "bits"), "0x3f800000"),
        (("declared", "height"), 3),
        (("declared", "accumulation"), "bf16"),
        (("output_type",), "f64"),
    ):
        assert check_certificate.disagreements(changed(*keys, to=to), {}), keys
    for keys, to in (
        (("candidate", "bits"), f"0x1{one['candidate']['bits'][2:]}"),
        (("candidate", "bits"), "-0x1"),
        (("declared", "height"), -1),
        (("declared", "height"), True),
        (("declared", "height"), "9"),
        (("declared", "height"), [9, -1]),
    ):
        path.write_text(json.dumps(changed(*keys, to=to)))
        assert check_certificate.main([str(path)]) == 1, keys
        assert "no certificate to check: ValueError" in capsys.readouterr().out
    path.write_text("{}")
    assert check_certificate.main([str(path)]) == 1


def test_products_of_zero_have_no_depth() -> None:
    """Of three products, one is not 0."""
    pairs = [(0.1, 0.3), (0.5, 0.0), (0.0, 0.5)]
    gamma = Fraction(1, 2**24 - 1)
    expected = gamma + 3 * Fraction(2) ** (-126 - 24) * (1 + gamma)
    assert check_certificate.bound_of(pairs, 0, Fraction(1), {"accumulation": "f32", "height": None}) == expected
