"""The parser of a convolution in HLO: its types, labels of axes, window and groups as one value.

HLO has ``%name = f32[..] convolution(f32[..] %lhs, f32[..] %rhs), window={..}, dim_labels=b01f_01io->b01f``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from convgrad.spec.geometry import effective_kernel
from convgrad.verify.cases.place import Place
from convgrad.words import printable

Shape = tuple[int, ...]
At = Callable[[int], Place]  # returns the place in the file of a position in the text
Window = dict[str, list[list[int]]]  # a number, or a pair of pads, per axis, by key: stride, pad, ...


@dataclass(frozen=True)
class Type:
    """The type of an array: the name of its elements' type, and its extents.

    ``unknown`` are extents as text that are not all known integers; ``shape`` is empty then.
    """

    name: str
    shape: Shape
    unknown: str = ""


class UnsupportedStatementError(Exception):
    """The statement is legal, but this library does not support it; ``name`` is the name of its result."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


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

    def positions(self) -> Shape:
        """Return the number of positions of out on each spatial axis, by the window."""
        extents = []
        for axis, (size, taps) in enumerate(zip(self.extents(0), self.extents(1), strict=True)):
            dilated = self.lhs_dilations[axis] * (size - 1) + 1 if size else 0
            room = dilated + sum(self.pads[axis]) - effective_kernel(taps, self.rhs_dilations[axis])
            extents.append(room // self.strides[axis] + 1 if room >= 0 and taps else 0)
        return tuple(extents)

    def result_shape(self) -> Shape:
        """Return the shape of out, by the window and the operands."""
        extents = dict(zip("".join(map(str, range(self.axes))), self.positions(), strict=True))
        extents |= {"b": self.extents(0, "b")[0] // max(self.batch_groups, 1), "f": self.extents(1, "o")[0]}
        return tuple(extents[letter] for letter in self.labels[2])


LONGEST = 1 << 14  # characters of a statement: the time of some regular expressions grows with the square of this
NUMBER = r"[0-9]{1,18}"
_KNOWN = re.compile(rf"(?:{NUMBER}(?:,{NUMBER})*)?", re.ASCII)
_HLO_TYPE = r"([a-z]\w*)\[([\d,<=?]*)\](?:\{[^{}]*\})?"
_HLO = re.compile(rf"\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*{_HLO_TYPE}\s+convolution\(")
_HLO_OPERAND = re.compile(rf"\s*(?:{_HLO_TYPE}\s+)?%?([\w.\-]+)\s*([,)])")
_HLO_DEFINED = re.compile(rf"\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*{_HLO_TYPE}\s")
_LABELS = re.compile(r"\bdim_labels=([^\W_]+)_([^\W_]+)->(\w+)")
_HLO_WINDOW = re.compile(r"\bwindow=\{([^{}]*)\}")
_BLANKED = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/')  # strings and comments, which may contain anything
_COUNTS = [re.compile(rf"\b{kind}_group_count\s*=\s*([0-9]{{1,18}})\b") for kind in ("feature", "batch")]


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
    """Return whether a statement is a convolution of HLO."""
    return bool(_HLO.match(text))


def read_statement(statement: str, defined: Defined, at: At) -> Convolution:
    """Return the convolution of a statement, or raise an error with the place of the text that cannot be read."""
    if len(statement) > LONGEST:
        raise at(0).refuse(f"a convolution's statement must have at most {LONGEST} characters; got {len(statement)}")
    text = _BLANKED.sub(lambda match: " " * len(match[0]), statement)
    match = _HLO.match(text)
    if match is None:
        raise at(0).refuse("must be NAME = TYPE convolution(..) or NAME = stablehlo.convolution(..); it is neither")
    out = _type(match[2], match[3])
    operands, position = [], match.end()
    for wanted in ",)":
        operand = _HLO_OPERAND.match(text, position)
        if operand is None or operand[4] != wanted:
            raise at(position).refuse("convolution must have two operands, (lhs, rhs); cannot read them")
        if operand[1]:
            operands.append(_type(operand[1], operand[2]))
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
    values = _hlo_window(window[1], at(window.start(1))) if window else {}
    counts = [expression.search(text, position) for expression in _COUNTS]
    groups = [int(count[1]) if count else 1 for count in counts]
    return built(match[1], (*operands, out), (labels[1], labels[2], labels[3]), values, groups, at(labels.start()))


def _type(name: str, extents: str) -> Type:
    return Type(name, _extents(extents)) if _KNOWN.fullmatch(extents) else Type(name, (), printable(extents))


def _extents(text: str) -> Shape:
    return tuple(map(int, text.split(","))) if text else ()


def _hlo_window(text: str, place: Place) -> Window:
    """Return the values of a window by key. Each value is a list with one number, or a pair of pads, per axis."""
    window: Window = {}
    for word in text.split():
        key, equals, values = word.partition("=")
        form = r"-?[0-9]{1,18}_-?[0-9]{1,18}" if key == "pad" else NUMBER
        axis_values = values.split("x")
        if key not in _KEYS or not equals or not all(re.fullmatch(form, value) for value in axis_values):
            keys = ", ".join(_KEYS)
            raise place.refuse(f"a window must have {keys} as 3x3, or pad as 1_1x1_1; cannot read {printable(word)}")
        window[_KEYS[key]] = [[int(number) for number in value.split("_")] for value in axis_values]
    return window


_KEYS = {"size": "size", "stride": "stride", "pad": "pad", "lhs_dilate": "lhs_dilate", "rhs_dilate": "rhs_dilate"}
_KEYS["rhs_reversal"] = "reverse"


def built(
    name: str,
    types: tuple[Type, ...],
    labels: tuple[str, str, str],
    window: Window,
    groups: Sequence[int],
    place: Place,
) -> Convolution:
    """Return the convolution, with default values where the text has none. Raise an error if values disagree.

    ``groups`` are the counts of feature and of batch groups. Unknown extents of the result are inferred. Raises
    UnsupportedStatementError if extents of an operand are unknown.
    """
    lhs, rhs, out = types
    unknown = [kind.unknown for kind in (lhs, rhs) if kind.unknown]
    if unknown:
        raise UnsupportedStatementError(name, f"extents must be known integers of at most 18 digits; got {unknown[0]}")
    axes = len(labels[0]) - 2
    digits = "".join(map(str, range(axes)))
    ranks = len(lhs.shape), len(rhs.shape), len(lhs.shape) if out.unknown else len(out.shape)
    for label, kind, rank, letters in zip(labels, types, ranks, ("bf", "io", "bf"), strict=True):
        if not 0 <= axes <= 9 or sorted(label) != sorted(letters + digits) or len(label) != rank:
            sentence = f"must have {letters} and the spatial axes from 0 once each, as many as its extents"
            raise place.refuse(f"labels {sentence} {list(kind.shape)}; got {printable(label)}")
    defaults = {"stride": [1], "pad": [0, 0], "lhs_dilate": [1], "rhs_dilate": [1], "reverse": [0]}
    kernel = [rhs.shape[labels[1].index(digit)] for digit in digits]
    values = {key: window.get(key) or [default] * axes for key, default in defaults.items()}
    for key, value in values.items():
        minimum = {"reverse": 0, "pad": -(2**62)}.get(key, 1)
        width = 2 if key == "pad" else 1
        if len(value) != axes or any(len(v) != width or min(v) < minimum for v in value):
            raise place.refuse(f"{key} of a window must have a legal entry for each of {axes} axes; got {value!s:.200}")
    if window.get("size", [[k] for k in kernel]) != [[k] for k in kernel]:
        raise place.refuse(f"size of a window must be rhs's {kernel}; got {[v[0] for v in window['size']]!s:.200}")
    convolution = Convolution(
        name,
        (lhs, rhs, out),
        labels,
        tuple(v[0] for v in values["stride"]),
        tuple((v[0], v[1]) for v in values["pad"]),
        tuple(v[0] for v in values["lhs_dilate"]),
        tuple(v[0] for v in values["rhs_dilate"]),
        tuple(bool(v[0]) for v in values["reverse"]),
        *groups,
    )
    return (
        replace(convolution, types=(lhs, rhs, Type(out.name, convolution.result_shape())))
        if out.unknown
        else convolution
    )
