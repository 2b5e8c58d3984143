"""The text of MLIR for the parser of convolutions: where statements begin, brackets, lists of integers, constants."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convgrad.verify.cases.hlo_text import LONGEST, NUMBER

AXES = 9  # the largest number of spatial axes
_OP = re.compile(r'"?\b(stablehlo|mhlo|vhlo)\.(convolution|dynamic_conv)(?:_v\d+)?"?\s*\(')
_RESULT = re.compile(r"%([\w.$\-]+)(?::\d+)?\s*=\s*\Z")
_LOOK_BACK = 200  # characters before an op that are searched for the name of its result
_BLANKED = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*')  # strings and comments, which may contain anything
_OP_NAME = re.compile(r'"\w+\.\w+"')
_BRACKET = re.compile(r"->|[()\[\]{}<>]")
_MARK = re.compile(r"->|[()\[\]{}<>,:]")
_CLOSES = {")": "(", "]": "[", "}": "{", ">": "<"}
_ALIAS = re.compile(r"^[ \t]*([#!][\w.$\-]+)[ \t]*=[ \t]*(\S[^\n]*)$", re.MULTILINE)
_CONSTANT = re.compile(r'"?\b(?:stablehlo|mhlo|arith)\.constant"?')
DENSE = re.compile(r"dense<([^<>]*)>\s*:\s*(?:tensor|vector)<((?:[0-9]{1,18}x)*)[A-Za-z]\w*>")
_ARRAY = re.compile(r"array<\s*i\d+\s*(?::([^<>]*))?>")
_LIST = re.compile(r"[\[\]\s,\-0-9]*")
SCALAR = re.compile(rf"(-?{NUMBER}|true|false)\s*(?::\s*\w+)?")


@dataclass(frozen=True)
class Statement:
    """A convolution in a text: where it begins and ends, where its operands begin, and the names of result and op."""

    begin: int
    operands: int
    end: int
    name: str
    dialect: str
    op: str


class MlirText:
    """A text of MLIR. ``text`` has blanks instead of comments and of strings other than names of ops.

    ``aliases`` are the attributes and types that the text has given a name, by name.
    """

    def __init__(self, text: str) -> None:
        self.text = _BLANKED.sub(lambda match: match[0] if _OP_NAME.fullmatch(match[0]) else " " * len(match[0]), text)
        self.aliases = {match[1]: match[2].strip() for match in _ALIAS.finditer(self.text)}
        self._constants: dict[str, tuple[list[int], list[int]]] = {}  # by name: where each begins, and its value
        for match in _CONSTANT.finditer(self.text):
            begin, name = self._result(match.start())
            begins, values = self._constants.setdefault(name, ([], []))
            begins.append(begin)
            values.append(match.end())

    def statements(self) -> Iterator[Statement]:
        """Yield the convolutions, in order. A statement ends where the next convolution begins, at the latest."""
        matches = list(_OP.finditer(self.text))
        results = [self._result(match.start()) for match in matches]
        ends = [*(begin for begin, _ in results[1:]), len(self.text)]
        for match, (begin, name), end in zip(matches, results, ends, strict=False):
            yield Statement(begin, match.end() - 1, end, name or match[2], match[1], match[2])

    def _result(self, op: int) -> tuple[int, str]:
        """Return where the statement of an op begins, and the name of its result, or "" without one."""
        before = self.text[max(op - _LOOK_BACK, 0) : op]
        match = _RESULT.search(before)
        return (op - len(before) + match.start(), match[1]) if match else (op, "")

    def constant(self, name: str, before: int) -> str | None:
        """Return the text that begins with the value of the constant that was last defined before a position."""
        begins, values = self._constants.get(name, ([], []))
        at = bisect(begins, before) - 1
        return None if at < 0 else self.text[values[at] : values[at] + LONGEST]

    def resolved(self, value: str) -> str:
        """Return an attribute or a type, without an alias."""
        value = value.strip()
        return self.aliases.get(value, value)


def continues(text: str) -> bool:
    """Return whether a text ends within a convolution, so that the next line belongs to it."""
    module = MlirText(text)
    return any(not _is_complete(module.text, last.operands) for last in list(module.statements())[-1:])


def _is_complete(text: str, operands: int) -> bool:
    """Return whether a statement has its types, which are its last part."""
    end = closing(text, operands)
    colon = next((at for at, mark in _bare(text, end + 1, len(text)) if mark == ":"), -1) if end >= 0 else -1
    types = re.compile(r"\s*").match(text, colon + 1)
    if colon < 0 or types is None or not text.startswith("(", types.end()):
        return colon >= 0 and types is not None and types.end() < len(text)  # no types follow
    end = closing(text, types.end())
    result = re.compile(r"\s*->\s*[!\w.$\-]*(?=\S)|\s*->\s*[!\w.$\-]+").match(text, end + 1) if end >= 0 else None
    if result is None:
        return False
    return text[result.end() : result.end() + 1] not in ("<", "(") or closing(text, result.end()) >= 0


def closing(text: str, first: int) -> int:
    """Return the position of the bracket that closes the one at ``first``, or -1.

    >>> closing("(a<b -> c>, [1])", 0)
    15
    """
    opened: list[str] = []
    for match in _BRACKET.finditer(text, first):
        bracket = match[0]
        if bracket in _CLOSES:
            if not opened or opened.pop() != _CLOSES[bracket]:
                return -1
            if not opened:
                return match.start()
        elif bracket != "->":
            opened.append(bracket)
    return -1


def items(text: str, first: int, last: int) -> Iterator[tuple[str, int]]:
    """Yield the parts of a text between commas outside brackets, and their positions.

    >>> [item for item, _ in items("a = [1, 2], b", 0, 13)]
    ['a = [1, 2]', ' b']
    """
    begin = first
    for at, mark in _bare(text, first, last):
        if mark == ",":
            yield text[begin:at], begin
            begin = at + 1
    if text[begin:last].strip():
        yield text[begin:last], begin


def _bare(text: str, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yield the commas and colons outside brackets, with their positions."""
    depth = 0
    for match in _MARK.finditer(text, first, last):
        mark = match[0]
        depth += (mark in "([{<") - (mark in _CLOSES)
        if mark in ",:" and depth == 0:
            yield match.start(), mark


def integers(value: str, width: int = 1) -> list[int] | None:
    """Return the integers of an attribute, also of booleans; None if it has other values.

    >>> integers("array<i64: 2, 1>"), integers("dense<3> : tensor<2x2xi64>", 2), integers("[true, false]")
    ([2, 1], [3, 3, 3, 3], [1, 0])
    """
    value = value.strip()
    array, dense, scalar = _ARRAY.fullmatch(value), DENSE.fullmatch(value), SCALAR.fullmatch(value)
    shape = None
    if array:
        inner = f"[{array[1] or ''}]"
    elif dense:
        inner, shape = dense[1].strip(), [int(extent) for extent in dense[2].split("x") if extent]
    else:
        inner = f"[{scalar[1]}]" if scalar else value
    inner = inner.replace("true", "1").replace("false", "0")
    numbers = re.findall(rf"-?{NUMBER}", inner)
    packed = "".join(inner.split())
    if shape is not None and prod(shape) <= 2 * AXES and re.fullmatch(rf"(?:-?{NUMBER})?", packed):
        return [int(number) for number in numbers] * prod(shape)  # the same value for all elements
    parts = [",".join(numbers[n : n + width]) for n in range(0, len(numbers), width)]
    nested = "[" + ",".join(f"[{part}]" if width > 1 else part for part in parts) + "]"
    if not _LIST.fullmatch(inner) or packed not in (nested, ""):
        return None
    return [int(number) for number in numbers]
