"""The parser of convolutions in MLIR: StableHLO and MHLO, in the pretty and in the generic form.

The pretty form is ``%0 = stablehlo.convolution(%lhs, %rhs) dim_numbers = [..]x[..]->[..], window = {..} {..} : (..) ->
..``, and the generic form is ``%0 = "stablehlo.convolution"(%lhs, %rhs) <{key = value, ..}> : (..) -> ..``, where the
attributes can also be in ``{..}``. ``dynamic_conv`` has its pads as a third operand, which must be a constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from convgrad.verify.cases.hlo_text import (
    LONGEST,
    NUMBER,
    At,
    Convolution,
    Type,
    UnsupportedStatementError,
    Window,
    built,
)
from convgrad.verify.cases.mlir_text import AXES, DENSE, SCALAR, MlirText, Statement, closing, integers, items
from convgrad.words import printable

_LABELS = re.compile(r"\[([^\[\]]*)\]\s*x\s*\[([^\[\]]*)\]\s*->\s*\[([^\[\]]*)\]")
_DIMENSIONS = {
    "input": ("bf", "batch", "feature"),
    "kernel": ("io", "input_feature", "output_feature"),
    "output": ("bf", "batch", "feature"),
}
WINDOW = {"stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation", "rhs_dilate": "rhs_dilation"}
WINDOW["reverse"] = "window_reversal"  # keys of the pretty form, and of the generic form


def read_statement(module: MlirText, statement: Statement, at: At) -> Convolution:
    """Return a convolution, or raise an error with the place of the text that cannot be read.

    ``at`` returns the place of a position after the statement's beginning. Raises UnsupportedStatementError if the
    statement is legal but not supported.
    """
    if statement.dialect == "vhlo":
        raise UnsupportedStatementError(statement.name, "VHLO is not read; convert it to StableHLO")
    return _Parser(module, statement, at).read()


@dataclass
class _Parser:
    """The parts of a statement, in the order of the text, as they are found."""

    module: MlirText
    statement: Statement
    at: At
    position: int = 0
    attributes: dict[str, tuple[str, int]] = field(default_factory=dict)  # values and their positions
    labels: tuple[str, str, str] | None = None
    labels_at: int = 0

    def __post_init__(self) -> None:
        """Take the text from the statement's beginning, cut at LONGEST."""
        begin, end = self.statement.begin, self.statement.end
        self.text = self.module.text[begin : min(end, begin + LONGEST)]

    def read(self) -> Convolution:
        """Return the convolution."""
        self.position = self.statement.operands - self.statement.begin
        operands = [word.strip() for word, _ in self._list()]
        while not self._takes(":"):
            if self._takes("dim_numbers") and self._takes("="):
                self._dim_numbers()
            elif self._takes("window") and self._takes("="):
                self.attributes |= {WINDOW.get(key, key): value for key, value in self._dict(WINDOW).items()}
            elif self._peeks("<{") or self._peeks("{"):
                self.attributes |= self._dict()
            elif not self._takes(","):
                self._refuse("a convolution must have its attributes, then a colon and its types; cannot read this")
        types = self._types()
        if "dimension_numbers" in self.attributes:
            value, self.labels_at = self.attributes["dimension_numbers"]
            self.labels = self._labels_of(value)
        if self.labels is None:
            self._refuse("a convolution must have dim_numbers or dimension_numbers; it has none", 0)
        window = self._window()
        if self.statement.op == "dynamic_conv":
            window["pad"] = self._dynamic_pads(operands)
        groups = [self._count("feature_group_count"), self._count("batch_group_count")]
        return built(self.statement.name, types, self.labels, window, groups, self.at(self.labels_at))

    # -- the syntax --------------------------------------------------------------------------------------------------

    def _refuse(self, sentence: str, position: int | None = None) -> NoReturn:
        at = self.position if position is None else position
        if at >= LONGEST or len(self.text) >= LONGEST:
            sentence = f"a convolution's statement must have at most {LONGEST} characters; it has more"
        raise self.at(at).refuse(sentence)

    def _blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _peeks(self, word: str) -> bool:
        self._blanks()
        return self.text.startswith(word, self.position)

    def _takes(self, word: str) -> bool:
        there = self._peeks(word)
        self.position += len(word) * there
        return there

    def _list(self) -> list[tuple[str, int]]:
        """Return the items of the brackets that begin here, and their positions."""
        first = self.position
        last = closing(self.text, first)
        if last < 0:
            self._refuse("a bracket must be closed; this one is not")
        self.position = last + 1
        return list(items(self.text, first + 1, last))

    def _dict(self, known: Mapping[str, str] | None = None) -> dict[str, tuple[str, int]]:
        """Return the entries of the braces that begin here; ``known`` are the only keys that are allowed."""
        if not self._peeks("<{") and not self._peeks("{"):
            self._refuse("attributes must be in braces; cannot read this")
        properties = self._takes("<")
        entries: dict[str, tuple[str, int]] = {}
        for entry, position in self._list():
            key, equals, value = entry.partition("=")
            key = key.strip()
            if known is not None and (key not in known or not equals):
                wanted = f"a window must have {', '.join(known)} as lists of integers"
                self._refuse(f"{wanted}; cannot read {printable(entry.strip())}", position)
            entries[key] = value.strip(), position
        if properties and not self._takes(">"):
            self._refuse("a bracket must be closed; this one is not")
        return entries

    def _dim_numbers(self) -> None:
        self._blanks()
        match, self.labels_at = _LABELS.match(self.text, self.position), self.position
        if match is None:
            self._refuse("dim_numbers must be [..]x[..]->[..]; cannot read this")
        self.labels, self.position = _labels(match), match.end()

    def _types(self) -> tuple[Type, ...]:
        """Return the types of lhs, rhs and the result."""
        count = 3 if self.statement.op == "dynamic_conv" else 2
        if not self._peeks("("):
            self._refuse(
                "the types of a convolution must be : (tensor<..>, tensor<..>) -> tensor<..>; cannot read them"
            )
        types = self._list()
        if len(types) != count or not self._takes("->"):
            self._refuse(
                "the types of a convolution must be : (tensor<..>, tensor<..>) -> tensor<..>; cannot read them"
            )
        if self._peeks("("):
            types += self._list()
        else:
            begin = self.position
            opened = re.compile(r"[!\w.$\-]+").match(self.text, begin)
            end = opened.end() if opened else begin
            if self.text.startswith("<", end):
                self.position = end
                self._list()
                end = self.position
            types.append((self.text[begin:end], begin))
        return tuple(self._type(*types[number]) for number in (0, 1, -1))

    def _type(self, text: str, position: int) -> Type:
        text = self.module.resolved(text)
        inner = text.removeprefix("tensor<").removesuffix(">")
        if len(text) - len(inner) != len("tensor<>"):
            self._refuse(f"a type must be tensor<..>; got {printable(text)}", position)
        first = next(items(inner, 0, len(inner)), ("", 0))[0].strip()
        match = re.match(r"((?:(?:[0-9]+|\?)x)*|\*x)(?=[A-Za-z!])", first)
        if match is None:
            self._refuse(
                f"a type must have extents and elements, as tensor<2x8x8x16xf32>; got {printable(text)}", position
            )
        extents = match[1].removesuffix("x").split("x") if match[1] else []
        element = self.module.resolved(first[match.end() :])
        name = element if "<" in element else element.lower()  # f8E4M3FN is f8e4m3fn in HLO
        if not all(re.fullmatch(NUMBER, extent) for extent in extents):
            return Type(name, (), printable(match[1].removesuffix("x")))
        return Type(name, tuple(map(int, extents)))

    # -- values ------------------------------------------------------------------------------------------------------

    def _labels_of(self, value: str) -> tuple[str, str, str]:
        """Return the labels of an attribute #stablehlo.conv<..>, or of MHLO's older form in braces."""
        value = self.module.resolved(value)
        match = re.match(r"#(?:stablehlo|mhlo)\.conv\s*<", value)
        inner = value[match.end() : -1] if match and value.endswith(">") else value[1:-1] if value[:1] == "{" else ""
        listed = _LABELS.fullmatch(inner.strip())
        if listed:
            return _labels(listed)
        numbers = {}
        for entry, _ in items(inner, 0, len(inner)):
            key, _, number = entry.strip().removeprefix("raw").partition("=")
            numbers[key.strip()] = integers(number)
        labels = []
        for side, (letters, *named) in _DIMENSIONS.items():
            axes = numbers.get(f"{side}_spatial_dimensions")
            places = [*(numbers.get(f"{side}_{name}_dimension") for name in named), *([at] for at in axes or ())]
            label = {place[0]: to for place, to in zip(places, letters + "0123456789", strict=False) if place}
            if axes is None or sorted(label) != list(range(len(axes) + 2)) or len(axes) > AXES:
                wanted = f"dimension_numbers must have each dimension of {side} once"
                self._refuse(f"{wanted}; cannot read {printable(value)}", self.labels_at)
            labels.append("".join(to for _, to in sorted(label.items())))
        return labels[0], labels[1], labels[2]

    def _window(self) -> Window:
        window: Window = {}
        for key, generic in WINDOW.items():
            if generic in self.attributes:
                value, position = self.attributes[generic]
                window[key] = self._per_axis(value, position, 2 if key == "pad" else 1)
        return window

    def _per_axis(self, value: str, position: int, width: int) -> list[list[int]]:
        """Return a value per axis, each a list of ``width`` integers."""
        numbers = integers(self.module.resolved(value), width)
        if numbers is None or len(numbers) % width:
            wanted = "pairs of integers" if width == 2 else "integers"
            self._refuse(f"a value per axis must be a list of {wanted}; cannot read {printable(value)}", position)
        return [numbers[n : n + width] for n in range(0, len(numbers), width)]

    def _count(self, name: str) -> int:
        if name not in self.attributes:
            return 1
        value, position = self.attributes[name]
        match = SCALAR.fullmatch(self.module.resolved(value))
        if match is None or not match[1].isdecimal():
            self._refuse(f"{name} must be an integer; cannot read {printable(value)}", position)
        return int(match[1])

    def _dynamic_pads(self, operands: list[str]) -> list[list[int]]:
        name = operands[2] if len(operands) == 3 else ""
        value = self.module.constant(name.removeprefix("%"), self.statement.begin)
        match = DENSE.search(value) if value else None
        if match is None:
            why = "the pads of dynamic_conv must be a constant of the text"
            raise UnsupportedStatementError(self.statement.name, f"{why}; got {printable(name) or 'none'}")
        return self._per_axis(match[0], 0, 2)


def _labels(match: re.Match[str]) -> tuple[str, str, str]:
    lhs, rhs, out = ("".join(group.replace(",", " ").split()) for group in match.groups())
    return lhs, rhs, out
