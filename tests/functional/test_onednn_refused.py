"""What oneDNN's graph accepts unvalidated, or refuses: refused, each by its rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidOpError, InvalidShapeError
from convgrad.functional.call import problem_from_shapes
from tests.functional.onednn_helpers import (
    BY_2,
    D2_VALID,
    FAMILIES,
    G2,
    G4,
    LOWER,
    P1,
    S2,
    UPPER,
    VALID,
    Shape,
    begin_end,
    named_formats,
    shape_in,
    strict,
)


class Refused(NamedTuple):
    """A call that must be refused, by a rule whose id the message carries."""

    id: str
    operator: str
    formats: str
    shapes: tuple[Shape, ...]
    options: dict[str, Any]
    rule: str


ERRORS: dict[str, type[ConvgradError]] = {"A": InvalidAttributeError, "A6": InvalidShapeError}
ERRORS |= {"G": InvalidShapeError, "O": InvalidOpError}

FORWARD, DATA, BACK = FAMILIES[False]
FORWARD_UP, DATA_UP, BACK_UP = FAMILIES[True]
SMALL, SMALL_WEIGHTS, SMALL_DST, SMALL_UP = (1, 4, 8, 8), (4, 4, 3, 3), (1, 4, 6, 6), (1, 4, 10, 10)
LEGAL: dict[str, tuple[str, tuple[Shape, ...]]] = {
    FORWARD: ("NCX OIX", (SMALL, SMALL_WEIGHTS)),
    DATA: ("NCX OIX", (SMALL_DST, SMALL_WEIGHTS, SMALL)),
    BACK: ("NCX OIX", (SMALL, SMALL_DST, SMALL_WEIGHTS)),
    FORWARD_UP: ("NCX IOX", (SMALL, SMALL_WEIGHTS)),
    DATA_UP: ("NCX IOX", (SMALL_UP, SMALL_WEIGHTS)),
    BACK_UP: ("NCX IOX", (SMALL, SMALL_UP, SMALL_WEIGHTS)),
}
MEANINGLESS = (4, 4, 1, 1)
OP3 = {"output_padding": 3}


def refused_452(data: str, weights: str, groups: int) -> Refused:
    """Return what oneDNN takes as the 452 of 224 by output_padding 3, stride 2: a forward of 452 has 225."""
    shapes = shape_in((1, 16, 224, 224), data), shape_in((16, 32 // groups, 3, 3), weights)
    id_, options = f"dst_shape 452 from 224, {data} {weights} g{groups}", BY_2 | OP3 | {"groups": groups}
    return Refused(id_, DATA, f"{data} {weights}", (*shapes, shape_in((1, 32, 452, 452), data)), options, "G6")


def of_the_six(what: str, options: dict[str, Any], rule: str) -> list[Refused]:
    """Refuse an otherwise legal call of all six operators for these options."""
    return [Refused(f"{name}: {what}", name, *legal, options, rule) for name, legal in LEGAL.items()]


def of_formats(names: tuple[str, ...], *weights: str) -> list[Refused]:
    """Refuse weights formats of the other family."""
    return [Refused(f"{n} with {w}", n, f"NCX {w}", LEGAL[n][1], {}, "A5") for n in names for w in weights]


REFUSED = (
    *(refused_452(d, w, g) for d in ("NCX", "NXC") for w in ("OIX", "XIO") for g in (1, 2, 4)),
    Refused("output_padding 3, stride 2", DATA, "NCX OIX", ((1, 16, 224, 224), (16, 32, 3, 3)), BY_2 | OP3, "A9"),
    Refused("no dst_shape, stride 2", DATA, "NCX OIX", ((1, 128, 14, 14), (128, 32, 1, 1)), S2, "A8"),
    Refused("no weights_shape", BACK, "NCX OIX", ((2, 4, 2), (2, 4, 2)), P1 | G2, "A7"),
    Refused("no weights_shape, transposed", BACK_UP, "NCX IOX", ((2, 4, 2), (2, 4, 2)), P1 | G2, "A7"),
    *(
        Refused(f"4x4x1x1, {op} {extents}", op, formats, ((1, 1, *a), (1, 1, *b), MEANINGLESS), options, "G4")
        for op, formats, flip in ((BACK, "NCX OIX", 1), (BACK_UP, "NCX IOX", -1))
        for extents, options in (
            ((16, 10), D2_VALID), ((6, 6), begin_end(1, 2)), ((6, 6), UPPER), ((6, 6), LOWER), ((6, 3), VALID)
        )
        for a, b in [[(e, e) for e in extents[::flip]]]
    ),
    Refused("kernel 1", BACK, "NCX OIX", ((1, 1, 16), (1, 1, 10), (1, 1, 1)), D2_VALID, "G6"),
    Refused("kernel 1, transposed", BACK_UP, "NCX IOX", ((1, 1, 10), (1, 1, 16), (1, 1, 1)), D2_VALID, "G7"),
    Refused("(32, 16) as IOX", FORWARD_UP, "NCX IOX", ((1, 16, 111, 111), (32, 16, 3, 3)), BY_2, "G4"),
    Refused("(32 / 4, 16) as IOX", FORWARD_UP, "NCX IOX", ((1, 16, 111, 111), (8, 16, 3, 3)), BY_2 | G4, "G4"),
    Refused("(192, 256) as IOX", DATA_UP, "NCX IOX", ((256, 384, 13, 13), (192, 256, 3, 3)), P1 | G2, "G4"),
    *of_formats(FAMILIES[True], "OIX", "XIO"),
    *of_formats(FAMILIES[False], "IOX", "XOI"),
    *of_the_six("pads_begin -1", begin_end(-1, 0), "A4"),
    *of_the_six("pads_end -1", begin_end(0, -1), "A4"),
    *of_the_six("stride 0", {"strides": 0}, "A4"),
    *of_the_six("dilation 0", {"dilations": 0}, "A4"),
    *of_the_six("groups 0", {"groups": 0}, "A4"),
    *of_the_six("one stride", {"strides": [1]}, "A6"),
    *of_the_six("three dilations", {"dilations": [1, 1, 1]}, "A6"),
    *of_the_six("one pad under same", UPPER | {"pads_end": [1]}, "A6"),
    *of_the_six("data_format NHWC", {"data_format": "NHWC"}, "A5"),
    *of_the_six("auto_pad SAME", {"auto_pad": "SAME"}, "A5"),
    *of_the_six("auto_pad False", {"auto_pad": False}, "A2"),
    *of_the_six("no strides", {"strides": None}, "A3"),
    *of_the_six("a foreign attribute", {"alpha": 1}, "A1"),
    *(Refused(f"{n}: four operands", n, f, (*s[:2], *[SMALL] * 2), {}, "O2") for n, (f, s) in LEGAL.items()),
    Refused("three operands of two", DATA_UP, "NCX IOX", (*LEGAL[DATA_UP][1], SMALL), {}, "O2"),
    Refused("channels 4 and 3", FORWARD, "NCX OIX", (SMALL, (4, 3, 3, 3)), {}, "G4"),
    Refused("ic 0", FORWARD, "NCX OIX", ((1, 0, 8, 8), (4, 0, 3, 3)), {}, "G5"),
    Refused("oc 0", FORWARD, "NCX OIX", (SMALL, (0, 4, 3, 3)), {}, "G5"),
    Refused("kh 0", FORWARD, "NCX OIX", (SMALL, (4, 4, 0, 3)), {}, "G5"),
    Refused("ic -4", FORWARD, "NCX OIX", ((1, -4, 8, 8), (4, -4, 3, 3)), {}, "G9"),
    Refused("mb -1", FORWARD, "NCX OIX", ((-1, 4, 8, 8), (4, 4, 3, 3)), {}, "G9"),
    Refused("kernel beyond the padded input", FORWARD, "NCX OIX", ((1, 1, 1), (1, 1, 2)), S2, "G8"),
    Refused("bias of 224 in NCX", "BiasAdd", "NCX", ((1, 3, 224, 224), (224,)), {}, "G11"),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.id)
def test_refused(case: Refused) -> None:
    convolves = "Bias" not in case.operator
    options = strict(case.options, len(case.shapes[0]) - 2) if convolves else case.options
    error = ERRORS.get(case.rule) or ERRORS[case.rule[0]]
    with pytest.raises(error, match=rf"\[{case.rule}\]$"):
        problem_from_shapes(case.operator, case.shapes, named_formats(case.formats) | options)  # as strictly as run


@pytest.mark.parametrize("name", LEGAL)
def test_what_the_six_are_refused_for_is_all_that_is_wrong(name: str) -> None:
    formats, shapes = LEGAL[name]
    convgrad.infer_shapes(name, *shapes, **strict({}, 2), **named_formats(formats))
