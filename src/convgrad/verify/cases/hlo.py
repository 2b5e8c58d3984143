"""Convolutions of HLO and StableHLO text as cases: each convolution is expressed as an operator of this package.

Along a spatial axis, with lhs dilated by l, rhs by r, stride s, pads a and b,

    out[p] = sum over k of dilated[p*s + k*r - a] * rhs[k],   dilated[l*i] = lhs[i],

and a reversal replaces rhs[k] by rhs[K-1-k]. Compare this with a convolution, i = p*stride + k*dilation - pad_begin:

- l = 1, no reversal: this is the forward pass.
- s = 1, a reversal: if K-1-k is substituted, lhs[i] meets out[p] under tap k where p = i*l + k*r - ((K-1)r - a). This
  is the data gradient with stride l, dilation r, pad_begin (K-1)r - a and pad_end (K-1)r - b, and src as long as out.
  If b exceeds (K-1)r by less than l, src has that many positions after the last one that a tap meets. Without a
  reversal, the operator's weights are rhs reversed, because the text's author has reversed them already.
- l = 1, lhs's feature axis f is the batch of src, its batch axis b is the channels of src, and rhs is diff_dst. Then
  out[k] = sum over p of src[k*s + p*r - a] * diff_dst[p] is the weight gradient with stride r and dilation s. The same
  text also describes a forward pass. It is read as a weight gradient if lhs has f before b, or if batch_group_count,
  which becomes the groups of the gradient, is above 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from convgrad.errors import ConvgradError
from convgrad.formats import of_program
from convgrad.graph.limits import Limits
from convgrad.spec.geometry import effective_kernel
from convgrad.verify.cases import mlir, mlir_text
from convgrad.verify.cases.case import Case, NoCaseError, Reading
from convgrad.verify.cases.hlo_text import (
    LONGEST,
    Convolution,
    Defined,
    UnsupportedStatementError,
    is_convolution,
    read_statement,
)
from convgrad.verify.cases.lying import WEIGHTS, lying
from convgrad.verify.cases.mlir_text import MlirText
from convgrad.verify.cases.naming import safe
from convgrad.verify.cases.place import Place, text_of
from convgrad.verify.cases.posed import legal, unsupported
from convgrad.words import printable

FORMATS = of_program("hlo")
KINDS = {"!quant": "quantised elements of type", "complex": "complex elements of type", "c": "complex elements of type"}
START = 1 << 16  # bytes at the start of a file that are searched for the first words of a module
_STATEMENT = re.compile(r"\s*(?:ROOT\s+)?%?[\w.\-:#]+\s*=\s|\s*\}|.*\{\s*$|\s*$")  # a statement's first or last line
_HEADS = re.compile(rb"\A(?:\xef\xbb\xbf)?(?:\s|//[^\n]*\n)*(?:HloModule|ENTRY|module|func\.func)\b")

Shape = tuple[int, ...]


def begins(word: str) -> bool:
    """Return whether a line with this first word may be HLO or StableHLO: a value's name, an op, or HLO's word ROOT."""
    return word.startswith(("%", "stablehlo.", "mhlo.", '"stablehlo.', '"mhlo.')) or word == "ROOT"


def matches(path: Path) -> bool:
    """Return whether a file is a module of HLO or StableHLO, by its ending or its first words."""
    if not path.is_file():
        return False
    if path.suffix.lower() in (".hlo", ".mlir"):
        return True
    try:
        with path.open("rb") as file:
            return _HEADS.match(file.read(START)) is not None
    except OSError:
        return False


def read(path: Path, limits: Limits) -> Iterator[Reading]:
    """Yield a case per convolution of a text, or the error of a convolution that cannot be read.

    In HLO, a convolution may omit the type of an operand defined above it.
    """
    count = 0
    for count, reading in enumerate(_readings(text_of(path, limits), Place(str(path))), 1):  # noqa: B007 - used below
        yield reading
    if not count:
        raise NoCaseError(f"{path}: must have a convolution, of HLO or StableHLO; it has none")


def _readings(text: str, place: Place) -> Iterator[Reading]:
    """Yield the case or the error of each convolution of a text that begins at a place."""
    module, last = MlirText(text), 0
    statements = list(module.statements())
    for statement in statements:
        place, last = _place_in(text[last : statement.begin], place, statement.begin - last), statement.begin
        at = partial(_place_in, text[last : last + LONGEST], place)
        yield _case_or_error(partial(mlir.read_statement, module, statement, at), place)
    defined = Defined()
    for first, statement_text in _statements(text) if not statements else ():
        if is_convolution(statement_text):
            begin = place if first == 1 else replace(place, line=place.line + first - 1, column=1)
            at = partial(_place_in, statement_text, begin)
            yield _case_or_error(
                partial(read_statement, statement_text, defined, at),
                at(len(statement_text) - len(statement_text.lstrip())),
            )
        defined.note(statement_text)


def _case_or_error(convolution: Callable[[], Convolution], place: Place) -> Reading:
    try:
        return _case(convolution, place)
    except ConvgradError as error:
        return error


def read_line(text: str, place: Place) -> list[Case]:
    """Return the case of one line, whose operands must have types. A line that cannot be read raises an error.

    >>> text = "y = f32[2,8,8,16] convolution(f32[2,4,4,32] g, f32[3,3,16,32] w), " + (
    ...     "window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f")
    >>> [case] = read_line(text, Place("x"))
    >>> case.operator, case.shapes, case.attributes["pads_begin"], case.attributes["pads_end"]
    ('ConvolutionBackwardData', ((2, 4, 4, 32), (3, 3, 16, 32), (2, 8, 8, 16)), [0, 0], [1, 1])
    """
    readings = list(_readings(text, place))
    for error in readings:
        if not isinstance(error, Case):
            raise error
    if not readings:
        raise place.refuse("must be NAME = TYPE convolution(..) or NAME = stablehlo.convolution(..); it is neither")
    return [case for case in readings if isinstance(case, Case)]


def continues(text: str) -> bool:
    """Return whether a text ends within a convolution of MLIR, which the next lines continue.

    >>> continues("%0 = stablehlo.convolution(%a, %b)"), continues("%0 = f32[1] convolution(f32[1] a, f32[1] b)")
    (True, False)
    """
    return mlir_text.continues(text)


def _place_in(text: str, start: Place, position: int) -> Place:
    before, newline, last = text[:position].rpartition("\n")
    if not newline:
        return replace(start, column=start.column + position)
    return replace(start, line=start.line + before.count("\n") + 1, column=len(last) + 1)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each statement's first line, and the statement. A line that begins another ends it."""
    first, start, number = 1, 0, 0
    at = 0
    while at <= len(text):
        number += 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if at > start and _STATEMENT.match(text, at, end):
            if text[start : at - 1].strip():
                yield first, text[start : at - 1]
            first, start = number, at
        at = end + 1
    yield first, text[start:]


def _name_of(value: str) -> str:
    return safe(f"value_{value}" if value.isdecimal() else value)


def _case(convolution: Callable[[], Convolution], place: Place) -> Case:
    try:
        c = convolution()
    except UnsupportedStatementError as error:
        return unsupported(_name_of(error.name), place, str(error))
    name, names = _name_of(c.name), [kind.name for kind in c.types]
    foreign = next((n for n in names if n not in FORMATS), None)
    if foreign is not None:
        kind = next((words for start, words in KINDS.items() if foreign.startswith(start)), "elements of type")
        return unsupported(name, place, f"{kind} {printable(foreign)} are not supported; {', '.join(FORMATS)} are")
    if names[0] != names[1]:
        return unsupported(name, place, f"operands must be of one type; got {names[0]:.80} and {names[1]:.80}")
    if not c.axes:
        return unsupported(name, place, "a convolution without a spatial axis is a product of matrices")
    _check(c, place)
    reasons = []
    for reading in (_weights_gradient, _forward, _data_gradient, _flipped_forward):
        outcome = reading(c)
        if isinstance(outcome, HloConvolution):
            return legal(outcome.case(c, name, place), place, c.types[2].shape)
        reasons.append(outcome)
    return unsupported(name, place, f"no operator of the family is this: {'; '.join(filter(None, reasons))}")


def _check(c: Convolution, place: Place) -> None:
    """Raise an error if the types of a convolution contradict one another by HLO's own rules."""
    (n, f), (i, o), (out_n, out_f) = c.extents(0, "bf"), c.extents(1, "io"), c.extents(2, "bf")
    fg, bg = c.feature_groups, c.batch_groups
    if min(fg, bg) < 1 or max(fg, bg) != fg * bg or f != i * fg or o % fg or o % bg or n != out_n * bg or o != out_f:
        sentence = (
            "lhs's f must be rhs's i times feature_group_count, lhs's b out's b times batch_group_count, and out's f"
        )
        values = f"f {f}, i {i}, feature_group_count {fg}, b {n} and {out_n}, batch_group_count {bg}, o {o}, f {out_f}"
        raise place.refuse(f"{sentence} rhs's o, which one of the counts may divide; got {values}")
    for axis, (extent, p) in enumerate(zip(c.positions(), c.extents(2), strict=True)):
        if extent != p:
            raise place.refuse(f"out must have {extent} positions on spatial axis {axis} by the window; got {p}")


@dataclass(frozen=True)
class HloConvolution:
    """A convolution read as an operator, with canonical shapes of lhs, rhs and out, and the orders of their axes."""

    operator: str
    names: tuple[str, str, str]  # the operator's names of lhs, rhs and out
    letters: tuple[str, str, str]
    shapes: tuple[Shape, Shape, Shape]  # canonical
    attributes: dict[str, object]
    notes: tuple[str, ...] = ()

    def case(self, c: Convolution, name: str, place: Place) -> Case:
        """Return the case, in the layouts that most of the text's arrays have."""
        spelled = dict(zip(self.names, c.labels, strict=True))
        axes = dict(zip(self.names, self.letters, strict=True))
        weights = next(n for n in self.names if n.endswith("weights"))
        data = lying({n: letters for n, letters in axes.items() if n != weights}, spelled=spelled)
        kernel = lying({weights: axes[weights]}, WEIGHTS, spelled)
        lhs, rhs, out = (
            (kernel if n == weights else data).shape(s) for n, s in zip(self.names, self.shapes, strict=True)
        )
        shapes = (lhs, rhs) if self.operator == "Convolution" else (lhs, rhs, out)
        attributes = self.attributes | {"data_format": data.format, "weights_format": kernel.format}
        operands, to = FORMATS[c.types[0].name], FORMATS[c.types[2].name]
        why = "; ".join((*data.notes, *kernel.notes, *self.notes))
        return Case(name, str(place), self.operator, shapes, attributes, operands, to, why=why)


def _attributes(strides: Shape, dilations: Shape, begins: Shape, ends: Shape, groups: int) -> dict[str, object]:
    values = {"strides": strides, "dilations": dilations, "pads_begin": begins, "pads_end": ends}
    return {name: list(value) for name, value in values.items()} | {"groups": groups}


def _reversed_axes(c: Convolution, reversal: bool) -> list[int]:
    """Return the axes with (or, for False, without) a reversal. Axes of one tap are in neither list."""
    return [x for x, k in enumerate(c.extents(1)) if k > 1 and c.reversals[x] == reversal]


def _flips(axes: list[int]) -> tuple[str, ...]:
    listed = ", ".join(map(str, axes))
    return (f"weights are those of the line reversed along spatial axes {listed}",) if axes else ()


def _forward(c: Convolution, flipped: bool = False) -> HloConvolution | str:
    reversed_axes = _reversed_axes(c, True)
    if max(c.lhs_dilations) > 1:
        return "" if flipped else "a forward has no lhs_dilate"
    if c.batch_groups > 1:
        return "" if flipped else "a forward has no batch_group_count"
    if reversed_axes and not flipped:
        return ""
    if min(map(min, c.pads)) < 0:
        return "" if flipped else "a forward has no pads below 0"
    begins, ends = (tuple(pad[side] for pad in c.pads) for side in (0, 1))
    letters = (_renamed(c.labels[0], "bf", "nc"), c.labels[1], _renamed(c.labels[2], "bf", "nc"))
    shapes = (
        (*c.extents(0, "bf"), *c.extents(0)),
        (*c.extents(1, "oi"), *c.extents(1)),
        (*c.extents(2, "bf"), *c.extents(2)),
    )
    attributes = _attributes(c.strides, c.rhs_dilations, begins, ends, c.feature_groups)
    return HloConvolution("Convolution", ("src", "weights", "dst"), letters, shapes, attributes, _flips(reversed_axes))


def _flipped_forward(c: Convolution) -> HloConvolution | str:
    return _forward(c, flipped=True)


def _data_gradient(c: Convolution) -> HloConvolution | str:
    if max(c.strides) > 1:
        return "a data gradient has no stride"
    if c.batch_groups > 1:
        return "a data gradient has no batch_group_count"
    begins, ends = [], []
    for (a, b), k, r, stride in zip(c.pads, c.extents(1), c.rhs_dilations, c.lhs_dilations, strict=True):
        reach = effective_kernel(k, r) - 1
        if a > reach:
            return f"a data gradient pads at most (K-1)*rhs_dilate, {reach}, at the beginning; got {a}"
        if b >= reach + stride:
            return (
                f"a data gradient pads less than (K-1)*rhs_dilate + lhs_dilate, {reach + stride}, at the end; got {b}"
            )
        begins.append(reach - a)
        ends.append(max(reach - b, 0))
    groups = c.feature_groups
    i, o = c.extents(1, "io")
    letters = tuple(
        _renamed(c.labels[at], was, to) for at, was, to in ((0, "bf", "nc"), (1, "io", "oi"), (2, "bf", "nc"))
    )
    shapes = (
        (*c.extents(0, "bf"), *c.extents(0)),
        (i * groups, o // groups, *c.extents(1)),
        (*c.extents(2, "bf"), *c.extents(2)),
    )
    moved = (
        (f"weights have the {groups} groups in the channels of diff_dst, the line in rhs's o",) if groups > 1 else ()
    )
    attributes = _attributes(c.lhs_dilations, c.rhs_dilations, tuple(begins), tuple(ends), groups)
    notes = (*moved, *_flips(_reversed_axes(c, False)))
    names = ("diff_dst", "weights", "diff_src")
    return HloConvolution(
        "ConvolutionBackwardData", names, (letters[0], letters[1], letters[2]), shapes, attributes, notes
    )


def _weights_gradient(c: Convolution) -> HloConvolution | str:
    labelled = c.labels[0].index("f") < c.labels[0].index("b")
    if not labelled and c.batch_groups == 1:
        return ""
    if c.feature_groups > 1 or max(c.lhs_dilations) > 1 or _reversed_axes(c, True):
        return "a weight gradient has no feature_group_count, lhs_dilate or reversal"
    ends = []
    rows = zip(c.pads, c.extents(0), c.extents(1), c.extents(2), c.strides, c.rhs_dilations, strict=True)
    for (a, _), src, dst, kernel, dilation, stride in rows:
        total = stride * (dst - 1) + effective_kernel(kernel, dilation) - src - a
        if a < 0 or total <= -stride:
            return "a weight gradient has no pads below 0, and as many positions of diff_dst as its src makes"
        ends.append(max(total, 0))
    letters = (_renamed(c.labels[0], "fb", "nc"), _renamed(c.labels[1], "io", "nc"), _renamed(c.labels[2], "fb", "oi"))
    shapes = (
        (*c.extents(0, "fb"), *c.extents(0)),
        (*c.extents(1, "io"), *c.extents(1)),
        (*c.extents(2, "fb"), *c.extents(2)),
    )
    begins = tuple(pad[0] for pad in c.pads)
    attributes = _attributes(c.rhs_dilations, c.strides, begins, tuple(ends), c.batch_groups)
    return HloConvolution(
        "ConvolutionBackwardWeights", ("src", "diff_dst", "diff_weights"), letters, shapes, attributes
    )


def _renamed(label: str, was: str, to: str) -> str:
    return label.translate(str.maketrans(was, to))
