"""Convolutions of HLO and StableHLO text: the operator that each is computes what the text's own definition says."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import cases
from convgrad.errors import ConvgradError, FileError
from convgrad.graph.limits import Limits
from convgrad.spec.layouts import axis_order
from convgrad.verify.cases import hlo
from convgrad.verify.cases.case import Case, NoCaseError
from convgrad.verify.cases.hlo_text import Convolution, Defined, read_statement
from convgrad.verify.cases.place import Place
from tests.cases.sources import MODULE
from tests.support.helpers import within
from tests.support.tiers import tiers

Array = np.ndarray[Any, Any]
HERE = Place("made.hlo")


def line(lhs: str, rhs: str, out: str, labels: str, window: str = "", more: str = "") -> str:
    operands = f"f32[{lhs}] %a, f32[{rhs}]{{3,2,1,0}} %b"
    return f"%c.1 = f32[{out}] convolution({operands}), window={{{window}}}, dim_labels={labels}{more}"


FORWARD, DATA, WEIGHTS = "Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"

# Each is a case, with the operator that it is.
LINES = {
    # forwards
    "2,7,8,4|3,3,4,6|2,7,8,6|b01f_01io->b01f|size=3x3 pad=1_1x1_1": FORWARD,
    "2,4,7,8|6,4,3,2|2,6,4,4|bf01_oi01->bf01|size=3x2 stride=2x2 pad=1_1x0_0": FORWARD,
    "2,9,4|3,2,6|2,4,6|b0f_0io->b0f|size=3 stride=2 rhs_dilate=2 pad=1_1|, feature_group_count=2": FORWARD,
    "7,8,2,4|3,3,4,6|7,8,2,6|01bf_01io->01bf|size=3x3 pad=1_1x1_1": FORWARD,  # a TPU's order
    "8,2,7,4|3,3,4,6|6,5,2,6|1b0f_01io->10bf|size=3x3": FORWARD,  # axes exchanged
    "2,7,8,4|3,1,4,6|2,7,8,6|b01f_01io->b01f|size=3x1 pad=1_1x0_0 rhs_reversal=0x1": FORWARD,  # one tap reversed
    # a forward of a reversed kernel is a data gradient of stride 1; with strides it is a forward on reversed weights
    "2,7,8,4|3,3,4,6|2,7,8,6|b01f_01io->b01f|size=3x3 pad=1_1x1_1 rhs_reversal=1x1": DATA,
    "2,7,8,4|3,3,4,6|2,4,4,6|b01f_01io->b01f|size=3x3 pad=1_1x1_1 rhs_reversal=1x1 stride=2x2": FORWARD,
    "2,3,4|3,4,6|2,7,6|b0f_0io->b0f|size=3 pad=3_3 rhs_reversal=1": FORWARD,  # padded too far for one
    # data gradients
    "2,4,5,6|3,3,4,6|2,8,9,4|b01f_01oi->b01f|size=3x3 pad=2_1x1_1 lhs_dilate=2x2 rhs_reversal=1x1": DATA,
    "2,4,5,6|3,3,4,6|2,8,9,4|b01f_01oi->b01f|size=3x3 pad=2_1x1_1 lhs_dilate=2x2": DATA,
    "2,6,4,5|6,4,3,2|2,4,8,13|bf01_io01->bf01|pad=2_3x3_0 lhs_dilate=2x3 rhs_dilate=2x3 rhs_reversal=1x0": DATA,
    "2,4,6|3,4,3|2,8,4|b0f_0oi->b0f|size=3 pad=1_2 lhs_dilate=2 rhs_reversal=1|, feature_group_count=2": DATA,
    "2,4,6|1,4,6|2,9,4|b0f_0oi->b0f|size=1 pad=0_2 lhs_dilate=2": "",  # as long as a stride is what no tap meets
    "2,4,6|1,4,6|2,8,4|b0f_0oi->b0f|size=1 pad=0_1 lhs_dilate=2": DATA,
    "2,4,6|3,4,6|2,4,4|b0f_0oi->b0f|size=3 pad=-1_0 lhs_dilate=2": DATA,  # padded by 3, 2
    # weight gradients
    "2,8,8,4|2,4,4,6|3,3,4,6|f01b_i01o->01bf|size=4x4 pad=0_1x0_1 rhs_dilate=2x2": WEIGHTS,
    "2,4,7,8|2,6,7,8|6,4,3,3|fb01_io01->fb01|size=7x8 pad=1_1x1_1": WEIGHTS,
    "2,9,4|2,4,6|2,4,6|f0b_i0o->0bf|size=4 pad=1_0 stride=2 rhs_dilate=2": WEIGHTS,
    "2,8,4|2,4,6|1,4,6|f0b_i0o->0bf|size=4 pad=0_-1 rhs_dilate=2": WEIGHTS,  # a row nobody reads
    "2,8,4|2,4,6|3,2,6|f0b_i0o->0bf|size=4 pad=0_1 rhs_dilate=2|, batch_group_count=2": WEIGHTS,
    # none
    "2,7,4|3,4,6|2,6,6|b0f_0io->b0f|size=3 lhs_dilate=2 stride=2 pad=0_0": "",
    "2,7,4|3,4,6|2,2,6|b0f_0io->b0f|size=3 pad=0_-1 stride=2": "",
    "2,7,4|3,4,6|1,5,6|b0f_0io->b0f|size=3 rhs_reversal=1|, batch_group_count=2": "",
}  # fmt: skip


def definition(c: Convolution, lhs: Array, rhs: Array) -> Array:
    """Return what the text means: sums over taps of dilated, padded lhs, group by group."""
    digits = "".join(map(str, range(c.axes)))
    x = lhs.transpose([c.labels[0].index(letter) for letter in "bf" + digits])
    w = rhs.transpose([c.labels[1].index(letter) for letter in "oi" + digits])
    w = w[(slice(None), slice(None), *(slice(None, None, -1 if r else 1) for r in c.reversals))]
    extents = [(n - 1) * d + 1 for n, d in zip(x.shape[2:], c.lhs_dilations, strict=True)]
    padded = np.zeros((*x.shape[:2], *(sum(p) + e for p, e in zip(c.pads, extents, strict=True))))
    index = []
    wide = np.zeros((*x.shape[:2], *extents))
    wide[(slice(None), slice(None), *(slice(None, None, d) for d in c.lhs_dilations))] = x
    for (a, b), e in zip(c.pads, extents, strict=True):
        index.append((slice(max(a, 0), a + e + min(b, 0)), slice(max(-a, 0), e + min(b, 0))))
    padded[(slice(None), slice(None), *(to for to, _ in index))] = wide[
        (slice(None), slice(None), *(of for _, of in index))
    ]
    out_shape = (x.shape[0] // c.batch_groups, w.shape[0], *c.extents(2))
    out = np.zeros(out_shape)
    groups = c.feature_groups * c.batch_groups
    o = w.shape[0] // groups
    for g in range(groups):
        n, f = out_shape[0], w.shape[1]
        rows = slice(g * n, (g + 1) * n) if c.batch_groups > 1 else slice(None)
        features = slice(g * f, (g + 1) * f) if c.feature_groups > 1 else slice(None)
        for tap in product(*map(range, w.shape[2:])):
            at = [
                slice(k * r, k * r + s * (p - 1) + 1, s)
                for k, r, s, p in zip(tap, c.rhs_dilations, c.strides, c.extents(2), strict=True)
            ]
            part = padded[(rows, features, *at)]
            out[:, g * o : (g + 1) * o] += np.einsum(
                "nf...,of->no...", part, w[(slice(g * o, (g + 1) * o), slice(None), *tap)]
            )
    canonical = ["bf" + digits].pop()
    return out.transpose([canonical.index(letter) for letter in c.labels[2]])


ROLES = {  # what b f, i o and b f of lhs, rhs and out are, in canonical order
    "Convolution": ("bf", "oi", "bf"),
    "ConvolutionBackwardData": ("bf", "io", "bf"),
    "ConvolutionBackwardWeights": ("fb", "io", "fb"),
}


def as_operator(c: Convolution, case: Case, arrays: tuple[Array, Array]) -> Array:
    """Return what the case's operator computes of the text's arrays, in canonical order of out's letters."""
    digits = "".join(map(str, range(c.axes)))
    canonical = [
        array.transpose([label.index(letter) for letter in letters + digits])
        for array, label, letters in zip(arrays, c.labels, ROLES[case.operator], strict=False)
    ]
    reversals = [x for x in range(c.axes) if f"axes {x}" in case.why or f", {x}" in case.why.partition("reversed")[2]]
    if case.operator != "ConvolutionBackwardWeights":
        canonical[1] = np.flip(canonical[1], [x + 2 for x in reversals])
        if case.operator == "ConvolutionBackwardData" and c.feature_groups > 1:  # (O/g, g C/g) made (g O/g, C/g)
            assert "groups" in case.why
            g, (o, i) = c.feature_groups, canonical[1].shape[:2]
            moved = np.moveaxis(canonical[1].reshape(o, g, i // g, *canonical[1].shape[2:]), 1, 0)
            canonical[1] = moved.reshape(g * o, i // g, *canonical[1].shape[2:])
    inputs: list[object] = []
    data, weights = (str(case.attributes[name]) for name in ("data_format", "weights_format"))
    layouts = (data, data if case.operator == "ConvolutionBackwardWeights" else weights)
    for array, layout in zip(canonical, layouts, strict=True):
        inputs.append(array.transpose(np.argsort(axis_order(layout, array.ndim))))
    assert tuple(np.shape(a) for a in inputs) == case.shapes[:2]
    result = convgrad.run(case.operator, *inputs, *(list(shape) for shape in case.shapes[2:]), **case.attributes)
    layout = weights if case.operator == "ConvolutionBackwardWeights" else data
    return np.asarray(result.transpose(axis_order(layout, result.ndim)))


def is_right(text: str) -> Case:
    """Assert that the operator of a text computes what the text means, on integers, and return the case."""
    [case] = hlo.read_line(text, HERE)
    c = read_statement(text, Defined(), lambda _: HERE)
    if case.unsupported:
        return case
    rng = np.random.default_rng(prod(map(prod, (t.shape for t in c.types))))
    arrays = tuple(rng.integers(-3, 4, kind.shape).astype(np.float32) for kind in c.types[:2])
    out = definition(c, arrays[0], arrays[1])
    digits = "".join(map(str, range(c.axes)))
    wanted = out.transpose([c.labels[2].index(letter) for letter in ROLES[case.operator][2] + digits])
    assert np.array_equal(as_operator(c, case, (arrays[0], arrays[1])), wanted)
    return case


@pytest.mark.parametrize("key", LINES)
def test_the_operator_computes_what_the_text_means(key: str) -> None:
    lhs, rhs, out, labels, window, more = (*key.split("|"), "")[:6]
    case = is_right(line(lhs, rhs, out, labels, window, more))
    assert (case.operator if not case.unsupported else "") == LINES[key], case.unsupported
    assert case.unsupported or not LINES[key] or case.shapes


def test_random_convolutions_mean_what_their_operator_computes() -> None:
    rng = np.random.default_rng(5)
    operators: dict[str, int] = {}
    for _ in range(30):
        k, l, s, r = (int(v) for v in rng.integers(1, 4, 4))  # noqa: E741 - of the text's own formula
        l, s = (l, 1) if rng.random() < 0.5 else (1, s)  # noqa: E741
        size, (a, b) = int(rng.integers(2, 7)), rng.integers(-1, 4, 2).tolist()
        groups, labels = (
            int(rng.integers(1, 3)),
            ["b0f_0io->b0f", "bf0_oi0->bf0", "f0b_i0o->0bf", "fb0_io0->fb0"][rng.integers(4)],
        )
        kind = ["", ", feature_group_count=2", ", batch_group_count=2"][rng.integers(3) if groups > 1 else 0]
        made = (l * (size - 1) + 1 + a + b - (r * (k - 1) + 1)) // s + 1
        if made < 1 or l * (size - 1) + 1 + a + b < 1 or made > 20:
            continue
        extents = [
            {"b": 2, "f": 4, "0": size},
            {"i": 4 // (2 if "feature" in kind else 1), "o": 6, "0": k},
            {"b": 1 if "batch" in kind else 2, "f": 6, "0": made},
        ]
        parts = labels.replace("->", "_").split("_")
        shapes = [",".join(str(e[letter]) for letter in p) for e, p in zip(extents, parts, strict=True)]
        window = f"size={k} stride={s} pad={a}_{b} lhs_dilate={l} rhs_dilate={r} rhs_reversal={int(rng.integers(2))}"
        case = is_right(line(*shapes, labels, window, kind))
        operators[case.operator if not case.unsupported else ""] = operators.get(case.operator, 0) + 1
    assert set(operators) == {"", "Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"}


STABLE = """module {
  func.func @main(%arg0: tensor<2x4x4x32xbf16>, %arg1: tensor<3x3x16x32xbf16>) -> tensor<2x8x8x16xf32> {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[2, 1], [1, 2]], lhs_dilate = [2, 2], rhs_dilate = [1, 1], reverse = [true, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x4x4x32xbf16>, tensor<3x3x16x32xbf16>) -> tensor<2x8x8x16xf32>
    return %0 : tensor<2x8x8x16xf32>
  }
}
"""  # noqa: E501
F8 = STABLE.replace("bf16", "f8E5M2").replace("xf32>", "xf8E4M3FN>")


@pytest.mark.parametrize(("text", "to"), [(STABLE, "f32"), (MODULE, "f32"), (F8, "f8_e4m3")])
def test_modules_are_read(text: str, to: str, tmp_path: Any) -> None:
    path = tmp_path / "module.txt"
    path.write_text(text)
    assert hlo.matches(path)
    [case] = hlo.read(path, Limits())
    assert case.operator == "ConvolutionBackwardData"
    assert case.shapes == ((2, 4, 4, 32), (3, 3, 16, 32), (2, 8, 8, 16))
    assert (case.attributes["pads_begin"], case.attributes["pads_end"]) == ([0, 1], [1, 0])
    assert case.output_format.name == to
    assert not case.why


GOOD = line("2,7,8,4", "3,3,4,6", "2,7,8,6", "b01f_01io->b01f", "size=3x3 pad=1_1x1_1")
BAD = {  # what is changed in it, to what: where the error stands, and a word of it
    ("size=3x3", "size=3x4"): ("dim_labels", "size"),
    ("pad=1_1x1_1", "pad=1_1"): ("dim_labels", "pad"),
    ("pad=1_1x1_1", "pad=1x1"): ("size=3x3", "pad as 1_1x1_1"),
    ("b01f_01io", "b01f_01ii"): ("dim_labels", "once each"),
    ("f32[2,7,8,4] %a", "%a"): ("%a", "defined before"),
    ("f32[2,7,8,6]", "f32[2,7,9,6]"): ("%c.1", "must have 8 positions on spatial axis 1"),
    ("f32[2,7,8,4]", "f32[2,7,8,5]"): ("%c.1", "feature_group_count"),
    (", dim_labels=b01f_01io->b01f", ""): (", window", "dim_labels"),
}


@pytest.mark.parametrize("change", BAD)
def test_mistakes_are_told_at_their_place(change: tuple[str, str]) -> None:
    at, word = BAD[change]
    text = GOOD.replace(*change)
    place = text.rindex(at) + (at == "%a")
    with pytest.raises(FileError, match=word.replace("[", r"\[")) as caught:
        hlo.read_line(text, HERE)
    assert str(caught.value).startswith(f"made.hlo:1:{place + 1}:"), str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("f32", "s8"),
        GOOD.replace("f32", "f32", 1).replace("convolution(f32", "convolution(bf16"),
        "%1 = f32[2,6] convolution(f32[2,4] %a, f32[4,6] %b), dim_labels=bf_io->bf",
        GOOD.replace("f32[2,7,8,4]", "f32[2,<=7,8,4]"),
    ],
)
def test_what_nobody_can_judge_says_so(text: str) -> None:
    [case] = hlo.read_line(text, HERE)
    assert case.unsupported


def test_a_text_without_a_convolution_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "none.hlo"
    path.write_text("HloModule m\n")
    with pytest.raises(ConvgradError, match="it has none"):
        list(hlo.read(path, Limits()))


PIECES = ["a", "/*a", '"', "{", "dim_labels=_", "\n", " ", "%a = f32[1] convolution(", ":(tensor<", "[]x"]


@tiers("start, piece", ["", "%a = f32[1] convolution(", "%0 = stablehlo.convolution("], PIECES, every=7)
def test_long_texts_take_no_time(piece: str, start: str, tmp_path: Any) -> None:
    path = tmp_path / "long.hlo"
    for size in (1 << 14, 1 << 18):
        path.write_text(start + piece * ((size - len(start)) // len(piece)))
        with within(1):
            try:
                assert all(isinstance(found, FileError) for found in hlo.read(path, Limits()))
            except NoCaseError:
                assert not start


def test_a_line_among_others_keeps_its_attributes(tmp_path: Any) -> None:
    path = tmp_path / "mixed.txt"
    path.write_text(f"{GOOD}\n# a comment\n{STABLE.splitlines()[2].strip()}\nmb2ic3ih8oc4kh3  # another\n")
    found = [case.operator for case in cases.read(path)]
    assert found[:2] == ["Convolution", "ConvolutionBackwardData"]
