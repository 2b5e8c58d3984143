"""The public functions, run and the operator table say the same."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, engines, infer_shapes, run
from convgrad.engines.llvm.engine import LlvmEngine
from convgrad.spec.operators import OPERATORS, Operator
from convgrad.spec.operators import rows as rows_named
from convgrad.spec.rules import RULES
from tests.support.helpers import FUNCTIONS, assert_same_bits, operands_of, random_case
from tests.support.table_rows import attributes_of, functions, legal, options_of, replaced, row, rows, searching
from tests.support.tiers import tiers


def test_every_current_operator_and_every_public_function_is_tied_to_the_table() -> None:
    assert {op.name for op in OPERATORS if not op.name.endswith("-1")} <= set(FUNCTIONS)
    others = {"compile", "error_bound", "explain", "infer_shapes", "run", "vjp"}
    others |= {"kernel_cache", "max_error", "threads", "tune"}
    others |= {"conv_transpose_backward", "convolution_backward"}  # of several operators each
    public = {name for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))}
    samples = {name for name in public if name.startswith(("clip", "per_sample", "weighted"))}
    assert {f.__name__ for f in FUNCTIONS.values()} == public - others - samples - {"join", "partials"}


def test_names_with_and_without_version() -> None:
    """A name is known with "-1" added or left out where no other operator has it; where one has, that one is meant."""
    names = {op.name for op in OPERATORS}
    for op in OPERATORS:
        other = op.name.removesuffix("-1") if op.name.endswith("-1") else f"{op.name}-1"
        assert {row.name for row in rows_named(other)} == {other if other in names else op.name}
    assert infer_shapes("ConvolutionBackpropWeights", (2, 6, 1), (2, 3, 1), (2, 1, 1), strides=[2], dilations=[1])
    with pytest.raises(ConvgradError, match=r"ConvolutionBackprop-1: .* Did you mean ConvolutionBackpropData-1, "):
        run("ConvolutionBackprop-1")


@functions
def test_a_signature_is_its_row(name: str) -> None:
    op, parameters = row(name), inspect.signature(FUNCTIONS[name]).parameters
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p.default for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert len(positional) + len(keywords) == len(parameters)
    assert [p.name for p in positional] == [port.name for port in op.operands]
    for parameter, port in zip(positional, op.operands, strict=True):
        assert parameter.default is (inspect.Parameter.empty if port.required else None)
    assert keywords == attributes_of(op) | options_of(op)
    assert keywords["data_format"] == "NXC"
    weights_format = op.attribute("weights_format")
    if weights_format:
        assert keywords[weights_format.name] == weights_format.choices[0]
        assert keywords["auto_pad"] == "none"
        assert keywords["groups"] == 1
    order = [n for n in keywords if n != "output_padding"]
    assert order == [*(n for n in attributes_of(op) if n != "output_padding"), *options_of(op)]
    assert "output_padding" not in keywords or list(keywords)[-1] == "output_padding"


@functions
def test_functions_of_one_meaning_have_one_signature(name: str) -> None:
    """The same keywords in the same order, whatever the generation calls them, but older pads may be left out."""
    op = row(name)
    current = next(r for r in OPERATORS if (r.solves_for, r.transposed) == (op.solves_for, op.transposed))
    kinds = [
        [
            p.kind if p.name.startswith("pads") else (p.kind, p.default, p.annotation)
            for p in inspect.signature(FUNCTIONS[one.name]).parameters.values()
        ]
        for one in (op, current)
    ]
    assert kinds[0] == kinds[1]
    assert [a.means for a in op.attributes] == [a.means for a in current.attributes]


@functions
def test_a_function_hands_on_every_keyword(name: str) -> None:
    """A bad value of each is refused by that name."""
    op, function = row(name), FUNCTIONS[name]
    operands, attributes = legal(op)
    by_name = {port.name: value for port, value in zip(op.operands, operands, strict=False)}
    by_name |= {a: v for a, v in attributes.items() if a in inspect.signature(function).parameters}
    assert_same_bits(function(**by_name), run(name, *operands, **attributes), name)
    for attribute in attributes_of(op):
        with pytest.raises(InvalidAttributeError, match=rf"^{name}: {attribute} must be .*\[A2\]$"):
            function(**by_name | {attribute: 1.5})
    for option, value, rule in [
        ("dtype", "int8", "T4"),
        ("out", [], "T5"),
        ("accumulate", 1, "D5"),
        ("threads", 0, "D6"),
    ]:
        with pytest.raises(RULES[rule].error, match=rf"^{name}: {option} must be .*\[{rule}\]$"):
            function(**by_name | {option: value})


@pytest.mark.every(2)
@rows
def test_every_row_is_reached_through_run(op: Operator) -> None:
    """By its operands in its order, with its attributes: an error names the very operand."""
    for seed in range(3):
        operands, attributes = legal(op, seed)
        ports = [port for port, _ in zip(op.operands, operands, strict=False)]
        result = run(op.name, *operands, **attributes)
        if not any(port.is_shape and port.required for port in op.operands):
            shapes = (v if port.is_shape else v.shape for port, v in zip(ports, operands, strict=True))
            assert infer_shapes(op.name, *shapes, **attributes) == result.shape
        for place, port in enumerate(ports):
            wrong = replaced(operands, {place: [[1.5]] if port.is_shape else np.zeros((1, 1), np.int8)})
            rule = "T3" if port.is_shape else "T1"
            if port.is_shape and port.required:
                continue  # what is no shape there is an operand of the other row
            with pytest.raises(ConvgradError, match=rf"^{op.name}: {port.name} must be .* \[{rule}\]$"):
                run(op.name, *wrong, **attributes)


@rows
def test_an_older_row_gives_what_the_current_one_gives(op: Operator) -> None:
    current = next(r for r in OPERATORS if (r.solves_for, r.transposed) == (op.solves_for, op.transposed))
    operands, attributes = legal(op, 1)
    given = {port.tensor: value for port, value in zip(op.operands, operands, strict=False)}
    means = {a.name: a.means for a in op.attributes}
    ordered = [given.get(port.tensor) for port in current.operands]
    renamed = {means[a]: v for a, v in attributes.items()}
    assert_same_bits(run(current.name, *ordered, **renamed), run(op.name, *operands, **attributes), op.name)


@tiers("examples", [12], long=[2000])
def test_functions_and_run_agree(examples: int) -> None:
    """Whatever the shapes and attributes: equal values on all axes may be one int, defaults may be left out."""

    @settings(searching, max_examples=examples)
    @given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(FUNCTIONS)))
    def check(seed: int, name: str) -> None:
        agree(seed, name)

    check()


def agree(seed: int, name: str) -> None:
    op = row(name)
    case = random_case(np.random.default_rng(seed), op)
    operands = operands_of(case, "normal", seed)
    shapes = {port.name for port in op.operands}
    keywords = {a: v for a, v in case.attributes.items() if a not in shapes}
    third = [v for a, v in case.attributes.items() if a in shapes]
    for attribute, default in attributes_of(op).items():
        value = keywords.get(attribute)
        if isinstance(value, list) and len(set(value)) == 1 and seed % 3:
            keywords[attribute] = value[0]
        if value is not None and keywords[attribute] == default and seed % 2:
            del keywords[attribute]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = run(name, *operands, dtype=case.dtype, **case.attributes)
        got = FUNCTIONS[name](*operands, *third, dtype=case.dtype, **keywords)
    assert_same_bits(got, expected, case)
    assert got.shape == expected.shape


ONES = np.ones((2, 3, 1), np.float32)
LAYER: tuple[Any, ...] = (ONES, ONES, (1, 1, 1))
THREADED: dict[str, Callable[[], object]] = {
    "convolution_backward": lambda: convgrad.convolution_backward(ONES, ONES, ONES[:1, :1], threads=3),
    "vjp": lambda: convgrad.vjp("BiasAddBackward", ONES, threads=3),
    "pullback": lambda: convgrad.vjp("Convolution", ONES, ONES[:1, :1], threads=3)[1](ONES),
    "partials": lambda: convgrad.partials("BiasAddBackward", ONES, threads=3),
    "per_sample_weights_norm2": lambda: convgrad.per_sample_weights_norm2(*LAYER, threads=3),
    "per_sample_bias_norm2": lambda: convgrad.per_sample_bias_norm2(ONES, threads=3),
    "weighted_weights_sum": lambda: convgrad.weighted_weights_sum(*LAYER, scale=[1, 2.0], threads=3),
    "weighted_bias_sum": lambda: convgrad.weighted_bias_sum(ONES, scale=[1, 2.0], threads=3),
    "clipped_weights_sum": lambda: convgrad.clipped_weights_sum(*LAYER, max_norm=1, threads=3),
}


@pytest.mark.parametrize("name", THREADED)
def test_the_threads_asked_for_reach_every_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def watched(computes: Callable[..., object]) -> Callable[..., object]:
        def called(*given: Any) -> object:
            asked.append(inspect.signature(computes).bind(*given).arguments.get("threads"))
            return computes(*given)

        return called

    for owner, computes in ((engines, "execute"), (engines, "norms2"), (LlvmEngine, "scale")):
        monkeypatch.setattr(owner, computes, watched(getattr(owner, computes)))
    THREADED[name]()
    assert set(asked) == {3}


@pytest.mark.parametrize("threads", [np.int8(2), np.array(2), 4096], ids=str)
def test_threads_are_any_integer(threads: Any) -> None:
    src, weights = np.arange(12, dtype=np.float32).reshape(1, 12, 1), np.ones((4, 1, 1), np.float32)
    assert np.array_equal(convgrad.convolution(src, weights, threads=threads), convgrad.convolution(src, weights))


def test_questions_take_attributes_as_the_functions_do() -> None:
    """An int for all axes, strides and dilations of 1 left out: of ``infer_shapes`` and ``explain``, not of ``run``."""
    strict = {"strides": [2, 2], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    shapes = ((1, 9, 9, 4), (3, 3, 4, 8))
    loose = {"strides": 2, "pads_begin": 1, "pads_end": 1}
    wanted = convgrad.infer_shapes("Convolution", *shapes, **strict)
    assert convgrad.infer_shapes("Convolution", *shapes, **loose) == wanted == (1, 5, 5, 8)
    same = convgrad.explain("Convolution", *shapes, **loose)
    assert same.problem == convgrad.explain("Convolution", *shapes, **strict).problem
    with pytest.raises(convgrad.InvalidAttributeError, match="A2"):
        convgrad.run("Convolution", *(np.ones(shape, np.float32) for shape in shapes), **loose)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conv2d", r"\. convolution takes any"),
        ("set_num_threads", r"\. Use convgrad\.threads"),
        ("ConvTranspose1d", r"\. conv_transpose takes"),
        ("conv2d_weight", r"\. convolution_backward_weights takes"),
    ],
)
def test_layers_of_other_libraries_are_no_attributes(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words) as caught:
        getattr(convgrad, name)
    assert (caught.value.name, caught.value.obj) == (name, convgrad)  # of which Python makes its own suggestion


def test_an_image_alone_is_taken_as_its_refusal_says() -> None:
    image, weights = np.ones((9, 8), np.float32), np.ones((3, 3, 1, 4), np.float32)
    for one, formats in ((image[None, ..., None], {}), (image[None, None], {"data_format": "NCX"})):
        assert convgrad.convolution(one, weights, **formats).ndim == 4


def test_a_misspelt_operand_is_named() -> None:
    """Python would say first that weights are missing, and not what was given instead."""
    with pytest.raises(TypeError, match=r"convolution\(\) got an unexpected keyword argument 'weight'"):
        convgrad.convolution(np.ones((1, 5, 1), np.float32), weight=np.ones((3, 1, 1), np.float32))
