"""Every attribute and shape of every function, for values that are no such sequence: our error on one short line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidShapeError
from convgrad.functional.call import problem_from_shapes
from convgrad.spec.check import as_integers, as_items, few
from convgrad.spec.foreign import TAUGHT
from convgrad.words import shown
from tests.support.helpers import FUNCTIONS, peak_bytes
from tests.support.odd_sequences import ODD
from tests.support.table_rows import legal, row
from tests.support.tiers import tiers

LONGEST = 1500  # characters of a message
X, W = np.ones((1, 5, 1), np.float32), np.ones((3, 1, 1), np.float32)


def assert_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ConvgradError) as caught:
        call()
    message = str(caught.value)
    assert message.endswith("]"), message
    assert len(message) < LONGEST
    assert message.isprintable()


@tiers("name, odd", list(FUNCTIONS), list(ODD), every=13)
def test_a_function_refuses_odd_attributes_and_shapes(name: str, odd: str) -> None:
    op, function = row(name), FUNCTIONS[name]
    operands, attributes = legal(op)
    shapes = {port.name for port in op.operands if port.is_shape}
    known = {a: value for a, value in attributes.items() if a not in shapes}
    for attribute in (a.name for a in op.attributes if a.per_axis):
        assert_refused(lambda attribute=attribute: function(*operands, **known | {attribute: ODD[odd]()}))  # type: ignore[misc]
        assert_refused(
            lambda attribute=attribute: convgrad.run(name, *operands, **attributes | {attribute: ODD[odd]()})  # type: ignore[misc]
        )
    for number, port in enumerate(op.operands):
        if port.is_shape and (odd != "text" or number < len(operands)):
            given = [*operands, None][: len(op.operands)]
            given[number] = ODD[odd]()
            assert_refused(lambda given=given: function(*given, **known))  # type: ignore[misc]


@tiers("named, odd", list(TAUGHT), list(ODD), every=33)
def test_a_hint_about_an_odd_value_ends(named: str, odd: str) -> None:
    if named in ("max_error", "out", "accumulate", "activation", "output_padding"):
        return  # options and attributes of the function
    assert_refused(lambda: convgrad.conv_transpose(X, W, **{named: ODD[odd]()}))


@pytest.mark.parametrize("odd", ODD)
def test_calls_without_operands_refuse_odd_values(odd: str) -> None:
    for function in (convgrad.infer_shapes, convgrad.explain):
        assert_refused(lambda function=function: function("Convolution", ODD[odd](), W.shape))  # type: ignore[misc]
        assert_refused(lambda function=function: function("Convolution", X.shape, W.shape, strides=ODD[odd]()))  # type: ignore[misc]
        shapes = X.shape, (1, 3, 1)
        assert_refused(
            lambda function=function, shapes=shapes: function(  # type: ignore[misc]
                "ConvolutionBackwardWeights", *shapes, weights_shape=ODD[odd]()
            )
        )
    assert_refused(lambda: convgrad.compile("Convolution", X, W, strides=ODD[odd](), dilations=[1]))


def test_names_of_gradients_are_few() -> None:
    y = np.ones((1, 3, 1), np.float32)
    _, pullback = convgrad.vjp("Convolution", X, W)
    for odd in ("range", "long list", "endless iterator", "repeated", "endless sequence", "2-D memoryview"):
        assert_refused(lambda odd=odd: pullback(y, needs=ODD[odd]()))  # type: ignore[misc]
        assert_refused(lambda odd=odd: convgrad.convolution_backward(X, y, W, needs=ODD[odd]()))  # type: ignore[misc]


@pytest.mark.parametrize("odd", ["range", "long list", "long tuple", "long array", "endless sequence"])
def test_a_long_value_is_not_read(odd: str) -> None:
    value = ODD[odd]()
    errors: list[str] = []

    def call() -> None:
        for attributes, error in (({"strides": value}, InvalidShapeError), ({"padding": value}, InvalidAttributeError)):
            with pytest.raises(error) as caught:
                problem_from_shapes("Convolution", (X.shape, W.shape), attributes, spell_out=True)
            errors.append(str(caught.value))

    assert peak_bytes(call) < 10**6
    assert (
        f"must have at most 64 values, as arrays have axes; got {len(value)} ({type(value).__name__}) [A6]" in errors[0]
    )


def test_views_of_memory_are_sequences_as_lists_are() -> None:
    extents = np.array([3, 1, 1])
    assert as_integers(memoryview(extents)) == (3, 1, 1)
    assert as_integers(memoryview(extents.reshape(3, 1))) is None
    y = np.ones((1, 3, 1), np.float32)
    assert convgrad.convolution_backward_weights(X, y, memoryview(extents)).shape == (3, 1, 1)
    with pytest.raises(ConvgradError, match=r"got int64 of shape \(3, 1\). Pass its .shape \[T3\]"):
        convgrad.convolution_backward_weights(X, y, memoryview(extents.reshape(3, 1)))


def test_few_takes_what_attributes_of_layers_are() -> None:
    assert few("", "stride", [1, np.int64(2)]) == (1, 2)
    assert few("", "stride", 3) == few("", "stride", np.array(3)) == 3
    assert few("", "stride", range(2)) == few("", "stride", np.arange(2)) == (0, 1)
    for odd in ODD:
        if not odd.startswith("no index"):  # symbolic integers are not asked for a value
            with pytest.raises(ConvgradError, match=r"^layer: stride must .*\[A[246]\]$"):
                few("layer", "stride", ODD[odd]())


def test_texts_of_values() -> None:
    assert shown(ODD["raises"]()).startswith("<Raises instance at ")
    assert [shown(ODD[odd]()) for odd in ("large number", "matrix")] == [
        "an integer of 16610 bits", "array([[1, 1], [1, 1]])",
    ]  # fmt: skip
    assert all(len(shown(make())) <= 200 for make in ODD.values())
    assert as_items(ODD["repeated"](), maximum=3) is None
    for value in ([1], ("a",), {"b": 2}, 1.5, "c'd", None):
        assert shown(value) == repr(value)


class Unprintable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def entered(context: AbstractContextManager[object]) -> None:
    with context:
        pass


LONG = 10**5000  # Python refuses to write it
OPTIONS: dict[str, Callable[[Any], object]] = {
    "threads": lambda odd: convgrad.convolution(X, W, threads=odd),
    "max_error": lambda odd: convgrad.convolution(X, W, max_error=odd),
    "activation": lambda odd: convgrad.convolution(X, W, activation=odd),
    "dtype": lambda odd: convgrad.convolution(X, W, dtype=odd),
    "out": lambda odd: convgrad.convolution(X, W, out=odd),
    "accumulate": lambda odd: convgrad.convolution(X, W, out=X, accumulate=odd),
    "needs": lambda odd: convgrad.convolution_backward(X, X, W, needs=odd, pads_begin=1, pads_end=1),
    "transposed": lambda odd: convgrad.per_sample_weights_norm2(X, X, W.shape, transposed=odd),
    "operand_type": lambda odd: convgrad.explain("Convolution", X.shape, W.shape, operand_type=odd),
    "extent": lambda odd: convgrad.infer_shapes("Convolution", (1, odd, 1), W.shape),
    "first": lambda odd: convgrad.partials(
        "ConvolutionBackwardWeights", X, X[:, 2:], W.shape, strides=[1], dilations=[1], first=odd
    ),
    "join": lambda odd: convgrad.join([odd]),
    "bound": lambda odd: convgrad.error_bound("Convolution", X, W, bound=odd),
    "context of threads": lambda odd: entered(convgrad.threads(odd)),
    "pool": lambda odd: entered(convgrad.threads(pool=odd)),
    "context of max_error": lambda odd: entered(convgrad.max_error(odd)),
    "tune": lambda odd: entered(convgrad.tune(odd)),
    "kernel_cache": lambda odd: entered(convgrad.kernel_cache(odd)),
}


@pytest.mark.parametrize("odd", [pytest.param(LONG, id="long"), pytest.param(Unprintable(), id="unprintable")])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_refuses_what_cannot_be_written(option: str, odd: object) -> None:
    if odd is LONG and "max_error" in option:
        OPTIONS[option](odd)  # a large bound admits every algorithm
        odd = -LONG
    with pytest.raises(ConvgradError) as caught:
        OPTIONS[option](odd)
    assert len(str(caught.value)) < LONGEST
