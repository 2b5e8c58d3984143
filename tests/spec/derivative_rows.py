"""The rows of docs/double_backward.md as functions, and random calls to evaluate them on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import convgrad
from convgrad.formats import F32
from convgrad.functional.call import prepare
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import OPERATORS, Operator
from tests.support.helpers import Case, operands_of, random_case
from tests.support.places import DOCS

Array = NDArray[Any]
PAGE = (DOCS / "double_backward.md").read_text(encoding="utf-8")
CELLS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = {(operator, name): text.strip("`") for operator, name, text in CELLS if text.startswith("`")}
LAYER = ("strides", "pads_begin", "pads_end", "dilations", "auto_pad", "groups", "data_format", "weights_format")
CURRENT = [op for op in OPERATORS if "G3" in op.generations]


def row_of(op: Operator) -> Operator:
    """Return the operator under its current name."""
    (current,) = [one for one in CURRENT if (one.solves_for, one.transposed) == (op.solves_for, op.transposed)]
    return current


def names_of(op: Operator) -> list[str]:
    """Return what the page calls an operator's tensors."""
    current = {port.tensor: port.name for port in row_of(op).operands}
    return [current[port.tensor] for port in op.operands]


def rest_of() -> Any:
    """Return the function of the page."""
    (text,) = re.findall(r"^```python\n(def rest_of.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    return found["rest_of"]


@dataclass(frozen=True)
class Call:
    """One call of an operator on integers."""

    op: Operator
    operands: tuple[Array, ...]
    attributes: Mapping[str, Any]

    def __call__(self, *moved: tuple[int, Array]) -> Array:
        """Return the result in float64, of which every sum is exact, with other operands at some places."""
        given = [dict(moved).get(at, operand) for at, operand in enumerate(self.operands)]
        ports = zip(self.op.operands, given, strict=False)
        wide = [np.asarray(array, array.dtype if port.is_shape else np.float64) for port, array in ports]
        return np.asarray(convgrad.run(self.op.name, *wide, **self.attributes))

    def derivative(self, name: str, v: Array) -> Array:
        """Return what the page's row gives."""
        named = dict(zip(names_of(self.op), self.operands, strict=False))
        meant = {a.means: self.attributes[a.name] for a in self.op.attributes if a.name in self.attributes}
        words = {"v": v, "np": np, "data_format": meant["data_format"], **named}
        if self.op.attribute("strides"):
            words["layer"] = {keyword: meant[keyword] for keyword in LAYER if keyword in meant}
        if self.op.transposed:
            words["rest"] = self.rest(meant)
        return np.asarray(eval(ROWS[row_of(self.op).name, name], vars(convgrad) | words))

    def rest(self, meant: Mapping[str, Any]) -> list[int]:
        conv = prepare(self.op.name, self.operands, dict(self.attributes)).problem.geometry
        assert isinstance(conv, Conv)
        pads = [meant.get(name, [0] * len(conv.axes)) for name in ("pads_begin", "pads_end")]
        extents = zip(*((a.src, a.dst, a.kernel) for a in conv.axes), strict=True)
        rest = rest_of()(*extents, meant["strides"], meant["dilations"], *pads, meant["auto_pad"])
        assert rest == meant.get("output_padding", rest)
        return list(rest)


def calls(op: Operator, seed: int) -> Iterator[Call]:
    """Yield a random call, and its like with less said: extents or a rest that follow."""
    rng = np.random.default_rng([97, seed, OPERATORS.index(op)])
    case = replace(random_case(rng, op, axes=1 + seed % 3), format=F32, dtype=None)
    for one in (case, *less_said(case)):
        operands = tuple(map(np.asarray, operands_of(one, "integers", seed)))
        yield Call(op, operands, one.attributes)


def less_said(case: Case) -> Iterator[Case]:
    op, attributes = case.op, dict(case.attributes)
    if (op.solves_for, op.transposed) == ("src", False):
        conv = prepare(op.name, operands_of(case, "integers", 0), attributes).problem.geometry
        assert isinstance(conv, Conv)
        shape = next(a.name for a in op.attributes if a.means == "dst_shape")
        attributes = {name: value for name, value in attributes.items() if name != shape}
        if not attributes["auto_pad"].startswith("same"):
            padding = [a.src + a.pad_begin + a.pad_end - a.span for a in conv.axes]
            yield replace(case, shapes=case.shapes[:2], attributes=attributes | {"output_padding": padding})
        elif all(a.effective_kernel >= a.stride for a in conv.axes):
            yield replace(case, shapes=case.shapes[:2], attributes=attributes)
    elif op.transposed and (op.solves_for != "src" or not any(attributes["output_padding"])):
        del attributes["output_padding"]
        yield replace(case, attributes=attributes)
