"""Descriptors as cases: the operands, result, formats and name of each operator of a problem line."""

from __future__ import annotations

from convgrad import notation
from convgrad.descriptor import Descriptor, write_descriptor
from convgrad.errors import NotationError
from convgrad.formats import Format
from convgrad.notation import Line
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.place import Place


def cases_of(line: Line, place: Place, output: Format, bias: Format, types: str) -> list[Case]:
    """Return the cases of a problem line: one case, or for BWD_WB two, of which the second is the bias gradient.

    ``output`` is the format of the first result, and ``bias`` that of the bias gradient. ``types`` is the text of the
    formats in the case's name.
    """
    cases = []
    for call in notation.calls(line):
        of_bias = call.operator == "BiasAddBackward"
        attributes = {name: value for name, value in call.attributes.items() if value is not None}
        to = bias if of_bias else output
        name = f"{name_of(line, types)}{'_bias' * of_bias}"
        note = line.descriptor.note
        cases.append(Case(name, str(place), call.operator, call.shapes, attributes, call.format, to, note=note))
    return cases


def name_of(line: Line, types: str) -> str:
    """Return the name of a case: the descriptor's name or its text, then direction, formats and layouts."""
    what = line.descriptor.name or text_of_problem(line.descriptor, line.transposed)
    layouts = f"{line.data_format}_{line.weights_format}"
    return "_".join(["deconv"] * line.transposed + [what, line.direction, types, layouts])


def text_of_problem(d: Descriptor, transposed: bool) -> str:
    """Return the text of a descriptor, or only its batch and channels if the notation cannot express it."""
    try:
        return write_descriptor(d, transposed)
    except NotationError:  # for example, if the notation would deduce other pads at the end
        return f"mb{d.batch}ic{d.in_channels}oc{d.out_channels}"
