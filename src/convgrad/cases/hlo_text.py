"""The parser of a convolution in HLO or StableHLO: its types, labels of axes, window and groups as one value.

HLO has ``%name = f32[..] convolution(f32[..] %lhs, f32[..] %rhs), window={..}, dim_labels=b01f_01io->b01f``. StableHLO
has ``%0 = stablehlo.convolution(%lhs, %rhs) dim_numbers = [..]x[..]->[..], window = {..} {..} : (..) -> ..``, and MHLO
has the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convgrad.cases.place import Place
from convgrad.words import printable

Shape = tuple[int, ...]
At = Callable[[int], Place]  # returns the place in the file of a position in the text


@dataclass(frozen=True)
class Type:
    """The type of an array: the name of its elements' type, and its extents."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Convolution:
    """A convolution. A label has one character per axis: b and f (lhs, out) or i and o (rhs); digits are spatial."""

    name: str
    types: tuple[Type, Type, Type]
    labels: tuple[str, str, str]
    strides: Shape
    pads: tuple[tuple[int, int], ...]
    lhs_dilations: Shape
    rhs_dilations: Shape
    reversals: tuple[bool, ...]
    feature_groups: int
    batch_groups: int

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.labels[0]) - 2

    def extents(self, which: int, letters: str = "") -> Shape:
        """Return the extents of lhs (0), rhs (1) or out (2) on the axes with these letters, or on all spatial axes."""
        letters = letters or "".join(map(str, range(self.axes)))
        return tuple(self.types[which].shape[self.labels[which].index(letter)] for letter in letters)


LONGEST = 1 << 14  # characters of a statement: the time of some regular expressions grows with the square of this
_NUMBER = r"[0-9]{1,18}"
_KNOWN = re.compile(rf"(?:{_NUMBER}(?:,{_NUMBER})*)?", re.ASCII)
_HLO_TYPE = r"([a-z]\w*)\[([\d,<=?]*)\](?:\{[^{}]*\})?"
_HLO = re.compile(rf"\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*{_HLO_TYPE}\s+convolution\(")
_HLO_OPERAND = re.compile(rf"\s*(?:{_HLO_TYPE}\s+)?%?([\w.\-]+)\s*([,)])")
_HLO_DEFINED = re.compile(rf"\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*{_HLO_TYPE}\s")
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")
_HLO_WINDOW = re.compile(r"\bwindow=\{([^{}]*)\}")
_MLIR = re.compile(r'\s*%?([\w.\-:#]+)\s*=\s*"?(?:stablehlo|mhlo)\.convolution"?\s*\(')
_NUMBERS_OF = r"\[([^\[\]]*)\]"
_DIM_NUMBERS = re.compile(rf"\bdim_numbers\s*=\s*{_NUMBERS_OF}\s*x\s*{_NUMBERS_OF}\s*->\s*{_NUMBERS_OF}")
_MLIR_WINDOW = re.compile(r"\bwindow\s*=\s*\{([^{}]*)\}")
_MLIR_KEY = re.compile(r"\s*(\w+)\s*=\s*(\[[^=]*\])\s*(?:,|$)")
_SIGNATURE = re.compile(r":\s*\(\s*tensor<([^<>]*)>\s*,\s*tensor<([^<>]*)>\s*\)\s*->\s*tensor<([^<>]*)>")
_BLANKED = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/')  # strings and comments, which may contain anything
_COUNTS = {"feature_group_count": re.compile(r"\bfeature_group_count\s*=\s*([0-9]{1,18})\b"),
           "batch_group_count": re.compile(r"\bbatch_group_count\s*=\s*([0-9]{1,18})\b")}  # fmt: skip


@dataclass
class Defined:
    """The types of the values that the text has defined so far, by name."""

    types: dict[str, Type] = field(default_factory=dict)

    def note(self, statement: str) -> None:
        """Record the value that an HLO statement defines."""
        match = _HLO_DEFINED.match(statement)
        if match and _KNOWN.fullmatch(match[3]):
            self.types[match[1]] = Type(match[2], _extents(match[3]))


def is_convolution(text: str) -> bool:
    """Return whether a statement is a convolution of HLO or of StableHLO."""
    return bool(_HLO.match(text) or _MLIR.match(text))


def is_generic(text: str) -> bool:
    """Return whether a statement has MLIR's generic form, in which attributes have another syntax."""
    return '.convolution"' in text


def read_statement(statement: str, defined: Defined, at: At) -> Convolution:
    """Return the convolution of a statement, or raise an error with the place of the text that cannot be read."""
    if len(statement) > LONGEST:
        raise at(0).refuse(f"a convolution's statement must have at most {LONGEST} characters; got {len(statement)}")
    text = _BLANKED.sub(lambda match: " " * len(match[0]), statement)
    match = _HLO.match(text)
    if match:
        return _hlo(text, match, defined, at)
    match = _MLIR.match(text)
    if match is None:
        raise at(0).refuse("must be NAME = TYPE convolution(..) or NAME = stablehlo.convolution(..); it is neither")
    return _mlir(text, match, at)


def _hlo(text: str, match: re.Match[str], defined: Defined, at: At) -> Convolution:
    out = _hlo_type(match[2], match[3], at(match.start(2)))
    operands, position = [], match.end()
    for wanted in ",)":
        operand = _HLO_OPERAND.match(text, position)
        if operand is None or operand[4] != wanted:
            raise at(position).refuse("convolution must have two operands, (lhs, rhs); cannot read them")
        if operand[1]:
            operands.append(_hlo_type(operand[1], operand[2], at(operand.start(1))))
        elif operand[3] in defined.types:
            operands.append(defined.types[operand[3]])
        else:
            name = printable(operand[3])
            raise at(operand.start(3)).refuse(f"an operand must have its type, or be defined before; got {name} alone")
        position = operand.end()
    labels = _LABELS.search(text, position)
    if labels is None:
        raise at(position).refuse(
            "a convolution must have dim_labels=LHS_RHS->OUT, such as b01f_01io->b01f; it has none"
        )
    window = _HLO_WINDOW.search(text, position)
    given = _hlo_window(window[1], at(window.start(1))) if window else {}
    return _built(match[1], (*operands, out), labels.groups(), given, text[position:], at(labels.start()))


def _hlo_type(name: str, extents: str, place: Place) -> Type:
    if not _KNOWN.fullmatch(extents):
        raise place.refuse(f"extents must be known integers of at most 18 digits; got [{printable(extents)}]")
    return Type(name, _extents(extents))


def _extents(text: str) -> Shape:
    return tuple(map(int, text.split(","))) if text else ()


def _hlo_window(text: str, place: Place) -> dict[str, list[list[int]]]:
    """Return the values of a window by key. Each value is a list with one number, or a pair of pads, per axis."""
    found: dict[str, list[list[int]]] = {}
    for word in text.split():
        key, equals, values = word.partition("=")
        form = r"-?[0-9]{1,18}_-?[0-9]{1,18}" if key == "pad" else _NUMBER
        each = values.split("x")
        if key not in _KEYS or not equals or not all(re.fullmatch(form, value) for value in each):
            keys = ", ".join(_KEYS)
            raise place.refuse(f"a window must have {keys} as 3x3, or pad as 1_1x1_1; cannot read {printable(word)}")
        found[_KEYS[key]] = [[int(number) for number in value.split("_")] for value in each]
    return found


_KEYS = {"size": "size", "stride": "stride", "pad": "pad", "lhs_dilate": "lhs_dilate", "rhs_dilate": "rhs_dilate"}
_KEYS["rhs_reversal"] = "reverse"


def _mlir(text: str, match: re.Match[str], at: At) -> Convolution:
    numbers, window, signature = (e.search(text, match.end()) for e in (_DIM_NUMBERS, _MLIR_WINDOW, _SIGNATURE))
    if numbers is None or signature is None:
        wanted = "dim_numbers = [..]x[..]->[..] and its types, : (tensor<..>, tensor<..>) -> tensor<..>"
        raise at(match.start(1)).refuse(f"a convolution must have {wanted}; cannot read them")
    labels = tuple("".join(group.replace(",", " ").split()) for group in numbers.groups())
    types = [_mlir_type(signature[i], at(signature.start(i))) for i in (1, 2, 3)]
    given = _mlir_window(window[1], at(window.start(1))) if window else {}
    labels_after = text[match.end() : signature.start()]
    return _built(match[1], tuple(types), labels, given, labels_after, at(numbers.start()))


def _mlir_type(text: str, place: Place) -> Type:
    *extents, name = text.partition(",")[0].strip().split("x")
    if not all(re.fullmatch(_NUMBER, extent) for extent in extents):
        raise place.refuse(f"extents must be known integers, as in tensor<2x8x8x16xf32>; got {printable(text)}")
    return Type(name.lower(), tuple(map(int, extents)))  # f8E4M3FN is f8e4m3fn in HLO


def _mlir_window(text: str, place: Place) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = {}
    position = 0
    while text[position:].strip():
        entry = _MLIR_KEY.match(text, position)
        words = [] if entry is None else entry[2].replace("true", "1").replace("false", "0").strip("[]").split(",")
        numbers = [word.strip(" \t[]") for word in words] if words != [""] else []
        if (
            entry is None
            or entry[1] not in _KEYS.values()
            or not all(re.fullmatch(r"-?[0-9]{1,18}", n) for n in numbers)
        ):
            raise place.refuse(
                f"a window must have stride, pad, ... as lists of integers; cannot read {printable(text)}"
            )
        values = list(map(int, numbers))
        pairs = [values[at : at + 2] for at in range(0, len(values), 2)]
        found[entry[1]] = pairs if entry[1] == "pad" else [[value] for value in values]
        position = entry.end()
    return found


def _built(
    name: str,
    types: tuple[Type, ...],
    labels: tuple[str | None, ...],
    window: Mapping[str, list[list[int]]],
    labels_after: str,
    place: Place,
) -> Convolution:
    """Return the convolution, with default values where the text has none. Raise an error if values disagree."""
    lhs, rhs, out = (label or "" for label in labels)
    axes = len(lhs) - 2
    digits = "".join(map(str, range(axes)))
    for label, kind, letters in zip((lhs, rhs, out), types, ("bf", "io", "bf"), strict=True):
        if not 0 <= axes <= 9 or sorted(label) != sorted(letters + digits) or len(label) != len(kind.shape):
            sentence = f"must have {letters} and the spatial axes from 0 once each, as many as its extents"
            raise place.refuse(f"labels {sentence} {list(kind.shape)}; got {printable(label)}")
    defaults = {"stride": [1], "pad": [0, 0], "lhs_dilate": [1], "rhs_dilate": [1], "reverse": [0]}
    kernel = [types[1].shape[rhs.index(digit)] for digit in digits]
    values = {key: window.get(key) or [default] * axes for key, default in defaults.items()}
    for key, value in values.items():
        minimum = {"reverse": 0, "pad": -(2**62)}.get(key, 1)
        width = 2 if key == "pad" else 1
        if len(value) != axes or any(len(v) != width or min(v) < minimum for v in value):
            raise place.refuse(f"{key} of a window must have a legal entry for each of {axes} axes; got {value!s:.200}")
    if window.get("size", [[k] for k in kernel]) != [[k] for k in kernel]:
        raise place.refuse(f"size of a window must be rhs's {kernel}; got {[v[0] for v in window['size']]!s:.200}")
    counts = [expression.search(labels_after) for expression in _COUNTS.values()]
    return Convolution(
        name,
        (types[0], types[1], types[2]),
        (lhs, rhs, out),
        tuple(v[0] for v in values["stride"]),
        tuple((v[0], v[1]) for v in values["pad"]),
        tuple(v[0] for v in values["lhs_dilate"]),
        tuple(v[0] for v in values["rhs_dilate"]),
        tuple(bool(v[0]) for v in values["reverse"]),
        *(int(count[1]) if count else 1 for count in counts),
    )
