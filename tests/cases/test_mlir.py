"""Convolutions of MLIR in all their forms: the same values, whatever the form, the lines and what stands around."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import cases
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.graph.limits import Limits
from convgrad.verify.cases import NoCaseError, hlo, mlir
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.hlo_text import Convolution, Type
from convgrad.verify.cases.mlir_text import MlirText
from convgrad.verify.cases.place import Place
from tests.support.helpers import within
from tests.support.tiers import tiers

LABELS = {1: ("b0f", "0io", "b0f"), 2: ("bf01", "oi01", "bf01"), 3: ("f01b", "i10o", "10bf"), 0: ("bf", "io", "bf")}


def random(seed: int) -> Convolution:
    """Return a random convolution with 0, 1 or 2 spatial axes, whose result follows from its window."""
    rng = np.random.default_rng(seed)
    labels = LABELS[seed % 4]
    axes = len(labels[0]) - 2

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in rng.integers(low, high, axes))

    fg, bg = [(1, 1), (2, 1), (1, 2)][rng.integers(3)]
    extents = [{"b": 4, "f": 4}, {"i": 4 // fg, "o": 6}]
    for size, each in zip((some(5, 9), some(1, 4)), extents, strict=True):
        each |= dict(zip("012", size, strict=False))
    lhs, rhs = (
        Type("f32", tuple(each[letter] for letter in label)) for each, label in zip(extents, labels, strict=False)
    )
    pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (axes, 2)))
    reversals = tuple(bool(n) for n in some(0, 2))
    window = (some(1, 3), pads, some(1, 3), some(1, 3), reversals)
    found = Convolution("result", (lhs, rhs, Type("f32", ())), labels, *window, fg, bg)
    return Convolution("result", (lhs, rhs, Type("f32", found.result_shape())), labels, *window, fg, bg)


def listed(values: Any) -> str:
    return str([list(v) if isinstance(v, tuple) else v for v in values]).lower()


def types(c: Convolution, more: str = "") -> str:
    lhs, rhs, out = (f"tensor<{''.join(f'{n}x' for n in kind.shape)}f32>" for kind in c.types)
    return f"({lhs}, {rhs}{more}) -> {out}"


def numbers(label: str) -> str:
    return f"[{', '.join(label)}]"


def dims(c: Convolution) -> str:
    return f"{numbers(c.labels[0])}x{numbers(c.labels[1])}->{numbers(c.labels[2])}"


def raw(c: Convolution, number: str = "", many: str = "{}") -> str:
    """Return the dimension numbers as keys; ``number`` follows an integer, and ``many`` surrounds a list."""
    words = []
    data, weights = {"b": "batch", "f": "feature"}, {"i": "input_feature", "o": "output_feature"}
    for side, label in zip(("input", "kernel", "output"), c.labels, strict=True):
        for letter, name in (weights if side == "kernel" else data).items():
            words.append(f"{side}_{name}_dimension = {label.index(letter)}{number}")
        spatial = [label.index(str(axis)) for axis in range(c.axes)]
        words.append(f"{side}_spatial_dimensions = {many.format(spatial)}")
    return ",\n      ".join(words)


def counts(c: Convolution) -> str:
    return f"batch_group_count = {c.batch_groups} : i64, feature_group_count = {c.feature_groups} : i64"


def array(values: Any, kind: str = "i64") -> str:
    words = ", ".join(str(v).lower() for v in values)
    return f"array<{kind}: {words}>" if words else f"array<{kind}>"


def dense(values: Any, kind: str = "i64") -> str:
    shape = "x".join(map(str, np.shape(values)))
    return f"dense<{listed(values)}> : tensor<{shape}x{kind}>"


def pads_of(c: Convolution) -> str:
    if not c.axes:
        return "dense<> : tensor<0x2xi64>"
    if len({pad for pads in c.pads for pad in pads}) == 1:
        return f"dense<{c.pads[0][0]}> : tensor<{c.axes}x2xi64>"
    return dense(c.pads)


def pretty(c: Convolution, dialect: str = "stablehlo") -> str:
    window = (
        f"stride = {listed(c.strides)}, pad = {listed(c.pads)}, lhs_dilate = {listed(c.lhs_dilations)}, "
        f"rhs_dilate = {listed(c.rhs_dilations)}, reverse = {listed(c.reversals)}"
    )
    precision = "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]"
    return (
        f"%result = {dialect}.convolution(%a, %b) dim_numbers = {dims(c)}, window = {{{window}}} "
        f"{{{counts(c)}, {precision}}} : {types(c)}"
    )


def broken(c: Convolution) -> str:
    """Return the pretty form on many lines, with comments and a location."""
    text = pretty(c).replace(", ", ",\n      ").replace(" {", "\n    {").replace(" : (", '\n  // ) -> " : (\n : (')
    return text + ' loc("a(b" at callsite("c.py":1:2))'


def attributes(c: Convolution, dimensions: str, window: Callable[..., str]) -> str:
    return (
        f"window_strides = {window(c.strides)}, padding = {pads_of(c)}, lhs_dilation = {window(c.lhs_dilations)},\n"
        f"  rhs_dilation = {window(c.rhs_dilations)}, window_reversal = {window(c.reversals, 'i1')},\n"
        f"  dimension_numbers = {dimensions}, {counts(c)}"
    )


def generic(c: Convolution) -> str:
    inside = attributes(c, f"#stablehlo.conv<{dims(c)}>", array)
    return f'%result = "stablehlo.convolution"(%a, %b) {{\n  {inside}\n}} : {types(c)}'


def properties(c: Convolution) -> str:
    inside = attributes(c, f"#stablehlo.conv<raw\n      {raw(c)}\n    >", array)
    return f'%result:1 = "stablehlo.convolution"(%a, %b) <{{{inside}}}> {{note = "}}> : ("}} : {types(c)}'


def older(c: Convolution) -> str:
    inside = attributes(c, f"{{{raw(c, ' : i64', f'dense<{{}}> : tensor<{c.axes}xi64>')}}}", dense)
    return f'%result = "mhlo.convolution"(%a, %b) {{{inside}}} : {types(c)}'


def aliased(c: Convolution) -> str:
    inside = attributes(c, "#numbers", array)
    lhs = types(c)[1:].partition(", ")[0]
    text = f'%result = "stablehlo.convolution"(%a, %b) <{{{inside}}}> : {types(c).replace(lhs, "!t", 1)}'
    return f"#numbers = #stablehlo.conv<{dims(c)}>\n!t = {lhs}\n{text}"


def dynamic(c: Convolution) -> str:
    inside = attributes(c, f"#stablehlo.conv<{dims(c)}>", array).replace(f"padding = {pads_of(c)},", "")
    constant = f"%p = stablehlo.constant {pads_of(c)}\n"
    wrong = "%p = stablehlo.constant dense<7> : tensor<1x2xi64>\n"
    more = f", tensor<{c.axes}x2xi64>"
    text = f'%result = "stablehlo.dynamic_conv"(%a, %b, %p) {{{inside}}} : {types(c, more)}'
    return f"{wrong}{constant}{text}\n{wrong}"


def unknown(c: Convolution) -> str:
    out = types(c).rpartition(" -> ")[2]
    return pretty(c).replace(f"-> {out}", f"-> tensor<{'?x' * (c.axes + 2)}f32, #stablehlo.bounds<[?, 3]>>")


FORMS: dict[str, Callable[[Convolution], str]] = {
    "pretty": pretty,
    "MHLO": lambda c: pretty(c, "mhlo"),
    "lines": broken,
    "generic": generic,
    "properties": properties,
    "older": older,
    "aliases": aliased,
    "dynamic": dynamic,
    "unknown result": unknown,
}


def parsed(text: str) -> Convolution:
    module = MlirText(text)
    [statement] = module.statements()
    return mlir.read_statement(module, statement, lambda position: Place("here", 1, position + 1))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_values(form: str) -> None:
    for seed in range(60):
        c = random(seed)
        assert parsed(FORMS[form](c)) == c, FORMS[form](c)


def module(*texts: str) -> str:
    functions = [f"func.func @f{n}(%a: tensor<1xf32>) {{\n{text}\n  return\n}}\n" for n, text in enumerate(texts)]
    return f'// a comment, and "stablehlo.convolution"(\nmodule {{\n{"".join(functions)}}}\n'


@pytest.mark.parametrize("form", FORMS)
def test_a_statement_that_cannot_be_read_leaves_the_others(form: str, tmp_path: Path) -> None:
    """Of each form, a good one, one that is cut at any place, and a good one: both good ones are read."""
    c = random(5)
    good = FORMS[form](c)
    count = len(hlo_cases(module(good), tmp_path)[0])
    for cut in range(good.rindex("onv", 0, good.index("(%a")), len(good) - 1, 17):
        found, errors = hlo_cases(module(good, good[: cut + 4], pretty(c)), tmp_path)
        assert len(found) + len(errors) >= 2 * count, good[:cut]
        assert [case.operator for case in found[:1]] == [case.operator for case in found[-1:]]
        for error in errors:
            line = int(str(error).removeprefix(f"{tmp_path}/m.mlir:").partition(":")[0])
            assert line > 3 + good.count("\n")


def hlo_cases(text: str, folder: Path) -> tuple[list[Case], list[ConvgradError]]:
    errors: list[ConvgradError] = []
    path = folder / "m.mlir"
    path.write_text(text)
    return list(cases.read(path, refused=errors.append)), errors


def test_hlo_goes_on_after_a_mistake(tmp_path: Path) -> None:
    line = "  %c.{} = f32[2,7,6] convolution(f32[2,7,4] %a, f32[3,4,6] %b), window={{size={} pad=1_1}}, dim_labels="
    line += "b0f_0io->b0f"
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY e {\n" + "\n".join(line.format(n, 3 + (n == 1)) for n in range(3)) + "\n}\n")
    errors: list[ConvgradError] = []
    assert [case.name for case in cases.read(path, refused=errors.append)] == ["c-0", "c-2"]
    assert [str(error).partition(": ")[0] for error in errors] == [f"{path}:4:89"]


SMALL = random(1)
TYPES = {
    "complex<f32>": "complex elements of type complex<f32> are not supported",
    "!quant.uniform<i8:f32, 2.0:15>": "quantised elements of type !quant.uniform<i8:f32, 2.0:15> are not supported",
    "!quant.uniform<i8:f32:1, {5.0:20, 5.0:20}>": "quantised elements of type !quant.uniform<i8:f32:1, {5.0:20,",
    "i8": "elements of type i8 are not supported; f32, ",
    "f8E4M3FNUZ": "elements of type f8e4m3fnuz are not supported; f32, ",
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("count", [1, 3])
def test_an_unsupported_type_is_named(name: str, count: int) -> None:
    text = pretty(SMALL)
    at = text.rindex(" : (")
    [case] = hlo.read_line(text[:at] + text[at:].replace("xf32>", f"x{name}>", count), Place("here"))
    assert case.unsupported.startswith(TYPES[name])


REASONS = {
    "extents": (pretty(SMALL).replace(": (tensor<4x", ": (tensor<?x"), "extents must be known"),
    "unranked": (pretty(SMALL).replace(": (tensor<4x7x4x", ": (tensor<*x"), "extents must be known"),
    "pads of an argument": (
        dynamic(SMALL).partition("\n%result")[2].join(["%result", ""]),
        "must be a constant of the",
    ),
    "VHLO": ('%result = "vhlo.convolution_v1"(%a, %b) <{}>', "VHLO is not read; convert it to StableHLO"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_legal_statement_that_is_not_supported(name: str) -> None:
    text, reason = REASONS[name]
    [case] = hlo.read_line(text, Place("here"))
    assert reason in case.unsupported, text


EMPTY = [
    "%c = f32[2,0,6] convolution(f32[2,2,4] %a, f32[3,4,6] %b), window={size=3}, dim_labels=b0f_0io->b0f",
    "%2 = stablehlo.convolution(%0, %1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} "
    "{batch_group_count = 1 : i64} : (tensor<2x3x9x10xf32>, tensor<3x3x10x5xf32>) -> tensor<2x3x0x6xf32>",
]


@pytest.mark.parametrize("text", EMPTY)
def test_an_empty_result_has_nothing_to_check(text: str) -> None:
    [case] = hlo.read_line(text, Place("here"))
    assert "has no elements, so there is nothing to check" in case.unsupported


def test_statements_on_several_lines_of_a_list(tmp_path: Path) -> None:
    """In a list, and typed, the lines of a statement belong together; the next problem ends one that is cut."""
    path = tmp_path / "list.txt"
    line = "BWD_D f32 NXC mb2ic3ih8oc4kh3"
    texts = [broken(SMALL).replace('  // ) -> " : (\n', ""), line, generic(SMALL), pretty(SMALL)[:60], line]
    path.write_text("\n".join(texts))
    errors: list[ConvgradError] = []
    found = list(cases.read(path, refused=errors.append))
    [one] = cases.read(pretty(SMALL))
    assert [case.operator for case in found] == [one.operator, "ConvolutionBackwardData"] * 2
    assert found[0].unsupported == found[2].unsupported == one.unsupported
    assert len(errors) == 1
    assert [case.unsupported for case in cases.read(generic(SMALL))] == [one.unsupported]
    with pytest.raises(NotationError, match="a bracket must be closed"):
        list(cases.read(generic(SMALL)[:80]))


PIECES = [
    "%a",
    '"stablehlo.convolution"(',
    '"',
    "//",
    "{",
    "<",
    "(",
    "dense<",
    "\n",
    " ",
    "stablehlo.constant",
    "->",
    "#a = b\n",
]


@tiers("start, piece", ["", '%0 = "stablehlo.convolution"(%a, %b) <{', "%0 = stablehlo.convolution("], PIECES, every=7)
def test_long_texts_take_no_time(piece: str, start: str, tmp_path: Path) -> None:
    path = tmp_path / "long.mlir"
    for size in (1 << 14, 1 << 18):
        path.write_text(start + piece * ((size - len(start)) // len(piece)))
        with within(1):
            try:
                assert all(isinstance(found, FileError) for found in hlo.read(path, Limits()))
            except NoCaseError:
                assert not start
