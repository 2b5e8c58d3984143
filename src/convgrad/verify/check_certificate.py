"""Check a certificate by plain arithmetic: ``python check_certificate.py FILE [OPERAND=RAW_FILE]...``.

The script imports nothing from convgrad. It computes the exact sum, its rounding, the bound, the candidate's error and
the verdict from the terms in the file, and compares them with the file's conclusions. OPERAND=RAW_FILE compares the
bytes of a raw file with the operand's hash in the certificate. If all operands are given, the terms are compared with
their elements, too. The exit code is 0 if everything agrees.
"""

import hashlib
import json
import sys
from fractions import Fraction
from itertools import product
from math import inf, isfinite, nan, prod
from pathlib import Path
from typing import TypedDict

Number = Fraction | float  # a float is infinite or NaN
TWO = Fraction(2)
# name: bits of the significand, exponents of the smallest normal number and of the largest binade, bits in all
FORMATS = {"f32": (24, -126, 127, 32), "bf16": (8, -126, 127, 16), "f16": (11, -14, 15, 16)}
FORMATS |= {"f64": (53, -1022, 1023, 64), "f8_e4m3": (4, -6, 8, 8), "f8_e5m2": (3, -14, 15, 8)}
SUMS = FORMATS | {"tf32": (11, -126, 127, 19), "f8_e4m3fnuz": (4, -7, 7, 8), "f8_e5m2fnuz": (3, -15, 15, 8)}
SPENT = {"f8_e4m3": 1}  # number of the largest binade's codes that encode NaN; no code is infinity


class StatedArithmetic(TypedDict):
    """The declared arithmetic: the format of sums, and their rounding depth or the blocks of their order."""

    accumulation: str
    height: int | list[int] | None


class StatedTerms(TypedDict):
    """The terms as hexadecimal floats: the factors of the products, and the added values."""

    x: list[str]
    y: list[str]
    added: list[str]


class StatedOperand(TypedDict):
    """An array: type, shape, SHA-256 of its bytes, tensor, and the order of axes that makes it [n, c, X] or [o, c, K].

    The tensor is src, dst, weights or bias of the underlying convolution, or old for the old value of the result.
    """

    type: str
    shape: list[int]
    sha256: str
    tensor: str
    order: list[int]


class StatedGeometry(TypedDict):
    """The underlying convolution: the tensor of the result, the order of its axes, groups, and channels of dst and src.

    A spatial axis has src, dst, kernel, stride, dilation and pad_begin. Position i of src, position p of dst and tap k
    meet if i = p * stride + k * dilation - pad_begin.
    """

    solves_for: str
    order: list[int]
    groups: int
    channels: list[int]
    axes: list[dict[str, int]]


class Conclusions(TypedDict):
    """The conclusions from the terms: numbers as fractions, infinity or NaN."""

    exact: str
    rounded: str
    magnitude: str
    bound: str
    candidate: str
    error: str | None
    share: float | None
    verdict: str


class Statements(TypedDict):
    """A certificate without its conclusions."""

    operator: str
    attributes: dict[str, object]
    operands: dict[str, StatedOperand]
    geometry: StatedGeometry
    output_type: str
    index: list[int]
    declared: StatedArithmetic
    terms: StatedTerms
    candidate: dict[str, str]


class Certificate(Statements):
    """The certificate of one element of a result."""

    conclusions: Conclusions


def rounded(value: Number, name: str) -> Number:
    """Return a value rounded to a format, ties to even; infinity beyond the largest number (NaN in f8_e4m3)."""
    if not isinstance(value, Fraction) or value == 0:
        return value
    p, minimum, *_ = FORMATS[name]
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= TWO**exponent > abs(value)  # 2^exponent <= |value| < 2^(exponent + 1)
    place = TWO ** (max(exponent, minimum) - p + 1)
    near = round(value / place) * place  # Python's round breaks ties to even
    return near if abs(near) <= largest(name) else inf if near > 0 else -inf


def decoded(bits: str, name: str) -> Number:
    """Return the number that a hexadecimal bit pattern encodes in a format."""
    p, minimum, maximum, width = FORMATS[name]
    negative, others = divmod(int(bits, 16), 1 << width - 1)
    if negative not in (0, 1):
        raise ValueError(f"{bits} are not {width} bits")
    field, significand = divmod(others, 1 << p - 1)
    sign = -1 if negative else 1
    if name in SPENT and field == maximum - minimum + 1 and significand == (1 << p - 1) - 1:
        return nan
    if field == maximum - minimum + 2:
        return nan if significand else sign * inf
    implicit = 1 << p - 1 if field else 0
    return sign * (significand + implicit) * TWO ** (max(field, 1) + minimum - p)


def largest(name: str) -> Fraction:
    """Return the largest finite number of a format of sums."""
    p, _, maximum, _ = SUMS[name]
    return (2 - (1 + SPENT.get(name, 0)) * TWO ** (1 - p)) * TWO**maximum


def bound_of(pairs: list[tuple[float, float]], added: int, magnitude: Fraction, declared: StatedArithmetic) -> Number:
    """Return gamma magnitude + m tiny/2 (1 + gamma), but 0 if sums are exact, infinity if they may overflow."""
    p, minimum, *_ = SUMS[declared["accumulation"]]
    live = sum(x != 0 and y != 0 for x, y in pairs[: len(pairs) - added])
    height, blocks = added + live, declared["height"]  # the depth of any order: terms but products of 0
    if any(type(depth) is not int or depth < 0 for depth in (blocks if isinstance(blocks, list) else [blocks or 0])):
        raise ValueError(f"{blocks} is no rounding depth")
    if isinstance(blocks, int):
        height = min(height, blocks)
    elif blocks:
        height = min(height, max(blocks) + len(blocks) - 1 + added)
    if magnitude <= 2**p and all(value.is_integer() for pair in pairs for value in pair):
        return Fraction(0)
    gamma = Fraction(height, 2**p - height) if height < 2**p else None  # gamma_h = h u / (1 - h u), where u = 2^-p
    if gamma is None or gamma >= 1:  # then N u (1 + u), for N terms with bias and old value, holds too
        longer = (len(pairs) - added + 2) * (TWO**-p) * (1 + TWO**-p)
        gamma = longer if gamma is None else min(gamma, longer)
    bound = gamma * magnitude + len(pairs) * TWO ** (minimum - p) * (1 + gamma)
    return bound if magnitude + bound <= largest(declared["accumulation"]) else inf


def conclusions(certificate: Statements) -> Conclusions:
    """Return the conclusions that follow from a certificate's terms, declared arithmetic and candidate."""
    name, terms = certificate["output_type"], certificate["terms"]
    x, y, added = (map(float.fromhex, terms[key]) for key in ("x", "y", "added"))
    ones = [(value, 1.0) for value in added]
    pairs = [*zip(x, y, strict=True), *ones]
    products = [Fraction(a) * Fraction(b) if isfinite(a) and isfinite(b) else a * b for a, b in pairs]
    exact: Number = sum(products, Fraction(0))
    magnitude = sum((abs(value) for value in products if isinstance(value, Fraction)), Fraction(0))
    bound = bound_of(pairs, len(ones), magnitude, certificate["declared"])
    got, error, share = decoded(certificate["candidate"]["bits"], name), None, None
    if isinstance(exact, Fraction) and isinstance(got, Fraction) and isinstance(bound, Fraction):
        p, minimum, *_ = FORMATS[name]
        error, last = abs(got - exact), max((abs(exact) + bound) / 2**p, TWO ** (minimum - p))
        ratio = error / (bound + last)
        share = float(ratio) if ratio < 2**1000 else None  # JSON has no larger number
    if isinstance(exact, Fraction):
        ends = rounded(exact - bound, name), rounded(exact + bound, name)
        inside = ends[0] <= got <= ends[1]
    else:
        ends = exact, exact
        inside = str(got) == str(exact)  # both are the same infinity, or NaN
    if name in SPENT and str(got) == "nan":  # this NaN may stand for infinity
        inside = any(not isinstance(end, Fraction) for end in ends)
    verdict = "undecided" if bound == inf else "inside" if inside else "beyond"
    return {
        "exact": str(exact),
        "rounded": str(rounded(exact, name)),
        "magnitude": str(magnitude),
        "bound": str(bound),
        "candidate": str(got),
        "error": None if error is None else str(error),
        "share": share,
        "verdict": verdict,
    }


def element(stated: StatedOperand, data: bytes, index: tuple[int, ...]) -> Number:
    """Return an operand's element from the operand's raw bytes; ``index`` is in the order [n, c, X] or [o, c, K]."""
    flat, size = 0, FORMATS[stated["type"]][3] // 8
    for axis, extent in enumerate(stated["shape"]):
        flat = flat * extent + range(extent)[index[stated["order"].index(axis)]]
    return decoded(data[flat * size : (flat + 1) * size][::-1].hex(), stated["type"])


def terms_of_operands(certificate: Statements, raw: dict[str, bytes]) -> dict[str, list[Number]]:
    """Return the terms of the element by the definition of the operator; raise ValueError if shapes do not fit."""
    geometry = certificate["geometry"]
    output, groups, axes = geometry["solves_for"], geometry["groups"], geometry["axes"]
    outer, inner = (channels // groups for channels in geometry["channels"])
    first, *others = index = [certificate["index"][axis] for axis in geometry["order"]]
    if min(index) < 0:
        raise ValueError(f"the index {index} is negative")
    tensors = {stated["tensor"]: (stated, raw[name]) for name, stated in certificate["operands"].items()}
    shapes = {tensor: [stated["shape"][axis] for axis in stated["order"]] for tensor, (stated, _) in tensors.items()}
    channels = {"src": [groups * inner], "dst": [groups * outer], "weights": [groups * outer, inner]}
    for tensor, (stated, data) in tensors.items():
        last = [*channels.get(tensor, []), *(axis[tensor] for axis in axes if tensor in axis)]
        fits = not axes or not last or shapes[tensor][-len(last) :] == last
        if not fits or len(data) != prod(stated["shape"]) * FORMATS[stated["type"]][3] // 8:
            raise ValueError(f"{tensor} of shape {stated['shape']} has not the stated extents, or other bytes")

    def at(tensor: str, *place: int) -> Number:
        return element(*tensors[tensor], place)

    added = [at(tensor, *place) for tensor, place in (("bias", index[1:2]), ("old", index)) if tensor in tensors]
    pairs: list[tuple[Number, Number]] = [(at("src", *index), Fraction(1))] if output == "bias_add" else []
    if output == "bias":
        batch, _, *extents = shapes["dst"]
        pairs = [(at("dst", n, first, *p), Fraction(1)) for n in range(batch) for p in product(*map(range, extents))]
    elif output != "bias_add":
        second, *places = others
        triples = product(*(_meetings(axis, output, place) for axis, place in zip(axes, places, strict=True)))
        indices = [tuple(zip(*of_axes, strict=True)) for of_axes in triples]  # i, p and k on all axes
        group = first // outer if output == "weights" else second // (outer if output == "dst" else inner)
        for c in range(shapes["src"][0] if output == "weights" else inner if output == "dst" else outer):
            for i, p, k in indices:
                if output == "weights":
                    pairs.append((at("src", c, group * inner + second, *i), at("dst", c, first, *p)))
                elif output == "dst":
                    pairs.append((at("src", first, group * inner + c, *i), at("weights", second, c, *k)))
                else:
                    o = group * outer + c
                    pairs.append((at("dst", first, o, *p), at("weights", o, second % inner, *k)))
    return {"x": [x for x, _ in pairs], "y": [y for _, y in pairs], "added": added}


def _meetings(axis: dict[str, int], output: str, place: int) -> list[tuple[int, int, int]]:
    """Return the positions i and p and the taps k that meet along an axis at this index of the result."""
    triples, place = [], range(axis[output])[place]
    for k in [place] if output == "weights" else range(axis["weights"]):
        for p in [place] if output == "dst" else range(axis["dst"]):
            i = p * axis["stride"] + k * axis["dilation"] - axis["pad_begin"]
            if i == place if output == "src" else 0 <= i < axis["src"]:
                triples.append((i, p, k))
    return triples


def misstated(certificate: Statements, raw: dict[str, bytes]) -> list[str]:
    """Return the names of attributes that are not those of the geometry, and of terms that are not the operands'."""
    attributes, axes = certificate["attributes"], certificate["geometry"]["axes"]
    names = {"strides": "stride", "dilations": "dilation", "pads_begin": "pad_begin"}
    other = [name for name, key in names.items() if axes and attributes[name] != [axis[key] for axis in axes]]
    other += ["groups"] * (bool(axes) and attributes["groups"] != certificate["geometry"]["groups"])
    terms = certificate["terms"]
    stated = {"x": terms["x"], "y": terms["y"], "added": terms["added"]}
    for key, numbers in terms_of_operands(certificate, raw).items():
        floats = map(float.fromhex, stated[key])
        if [str(Fraction(number) if isfinite(number) else number) for number in floats] != [*map(str, numbers)]:
            other.append(f"terms {key}")
    return other


def disagreements(certificate: Certificate, raw: dict[str, bytes]) -> list[str]:
    """Return sentences on stated conclusions that do not follow, and on operands with another hash or other terms."""
    right, stated = conclusions(certificate), certificate["conclusions"]
    other = sorted(key for key in {*right, *stated} if right.get(key) != stated.get(key))
    wrong = [f"{key} is stated as {stated.get(key)}, but is {right.get(key)}" for key in other]
    for name, data in raw.items():
        if hashlib.sha256(data).hexdigest() != certificate["operands"][name]["sha256"]:
            wrong.append(f"the bytes of {name} have another hash")
    if not wrong and raw.keys() == certificate["operands"].keys():
        wrong = [f"{name}: not as the operands and the geometry have it" for name in misstated(certificate, raw)]
    return wrong


def main(arguments: list[str]) -> int:
    """Check a certificate file and the given raw files of operands; return the exit code."""
    if not arguments:
        print(__doc__)
        return 1
    try:
        certificate = json.loads(Path(arguments[0]).read_text("utf-8-sig"))
        paths = dict(argument.split("=", 1) for argument in arguments[1:])
        wrong = disagreements(certificate, {name: Path(path).read_bytes() for name, path in paths.items()})
        said = f"element {certificate['index']} of {certificate['operator']}: {certificate['conclusions']['verdict']}"
        said += "; everything that is stated follows"
        missing = " ".join(f"{name}=RAW_FILE" for name in certificate["operands"] if name not in paths)
        said += f" from the terms. Give {missing} to compare the terms with the operands" * bool(missing)
    except (OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        wrong = [f"no certificate to check: {type(error).__name__}: {error}"]
    print("\n".join(wrong) or said)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
