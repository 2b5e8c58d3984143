"""Descriptions of arrays on GPUs that are not as ``__cuda_array_interface__`` must be; other protocols that raise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidDataTypeError, UnsupportedError
from convgrad.arrays.libraries.cuda_interface import read
from tests.functional.fake_gpu import CudaArray, fake_gpu

X, W, OUT = np.ones((1, 5, 1), np.float32), np.ones((3, 1, 1), np.float32), np.zeros((1, 3, 1), np.float32)


class Raises:
    """A mapping that raises."""

    def keys(self) -> Any:
        raise RuntimeError("no keys")


class Described:
    """An array of a library for GPUs, with any description."""

    def __init__(self, description: object) -> None:
        self.__cuda_array_interface__ = description


def of(array: Any, **fields: Any) -> Any:
    return {**CudaArray(array).__cuda_array_interface__, **fields}


def without(field: str) -> Any:
    return {name: value for name, value in of(X).items() if name != field}


ADDRESS = of(X)["data"][0]
DATA, SHAPE = "data must be a tuple of an address and whether", "shape must be a tuple of non-negative integers"
STRIDES = "strides must be None or a tuple of one integer per axis"
MALFORMED: dict[str, tuple[Any, str]] = {
    **{f"without {name}": (without(name), "must have shape, typestr, data, version") for name in
       ("shape", "typestr", "data", "version")},
    "empty": ({}, "must have shape, typestr, data, version; got []"),
    **{f"{kind}": (value, "it must be a dict") for kind, value in
       {"number": 3, "text": "x", "pairs": [(1, 2, 3)], "raises": Raises(), "object": object()}.items()},
    **{f"version {value!r}": (of(X, version=value), "version must be an integer up to 3") for value in
       (None, "3", 3.0, 4, -1, True, 10**30)},
    **{f"shape {value!r:.30}": (of(X, shape=value), SHAPE) for value in
       (None, 5, "abc", (1.0, 5, 1), (-1, 5, 1), (True, 5, 1), [[1, 5, 1]], range(10**9), (1,) * 70, {1: 5})},
    **{f"typestr {value!r}": (of(X, typestr=value), "typestr must be a string") for value in
       (None, 4, b"<f4", ["<f4"])},
    **{f"strides {value!r:.30}": (of(X, strides=value), STRIDES) for value in
       (5, (4,), (4, 4, 4, 4), (4, 4, "a"), (20, 4.0, 4), "abc", range(10**9), {4: 4})},
    "long strides": (of(X, strides=(2**70, 4, 4)), "size in bytes must fit 63 bits"),
    **{f"long shape {shape}": (of(X, shape=shape), "size in bytes must fit 63 bits") for shape in
       ((2**40, 2**40, 1), (0, 2**62, 1), (2**40, 0, 2**40))},
    **{f"data {value!r}": (of(X, data=value), DATA) for value in
       (None, 4096, (4096,), (4096, False, 1), ("a", False), (None, False), (4096.0, False), (4096, "no"),
        (4096, None))},
    **{f"address {value}": (of(X, data=(value, False)), "address must be that of an array") for value in
       (0, -4096, 2**63, 10**30)},
    **{f"stream {value!r}": (of(X, stream=value), "stream must be None or a positive integer") for value in
       (0, -1, "1", 1.5, False, 10**30)},
}  # fmt: skip


@pytest.mark.parametrize(("description", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_description_is_refused(description: Any, words: str) -> None:
    """As an operand and as ``out``."""
    text = rf"must have a correct __cuda_array_interface__: .*{re.escape(words)}.*\[D1\]$"
    with fake_gpu():
        for calls in (
            (r"src", lambda: convgrad.convolution(Described(description), CudaArray(W), out=CudaArray(OUT))),
            (r"filter", lambda: convgrad.run("Convolution-1", CudaArray(X), Described(description), strides=[1],
                                             dilations=[1], out=CudaArray(OUT))),
            (r"out", lambda: convgrad.convolution(CudaArray(X), CudaArray(W), out=Described(description))),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError, match=rf"^Convolution\S*: {calls[0]} {text}") as caught:
                calls[1]()
            assert str(caught.value).isprintable()


def test_wrong_types_and_masks_are_refused_by_their_rules() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"typestr": "nonsense"}, "type string 'nonsense'"),
        ({"typestr": "<f8" * 999}, "type string"),
        ({"mask": 5}, "whose mask would be ignored"),
    ]
    for fields, words in wrong:
        with pytest.raises(InvalidDataTypeError, match=words):
            read(of(X, **fields), "Convolution", "src")


def test_legal_descriptions_are_read() -> None:
    """Those of any version, with integers of any library and lists; None describes no array."""
    legal: list[dict[str, Any]] = [
        *({"version": version} for version in range(4)),
        {"shape": [1, np.int64(5), 1], "strides": [20, 4, 4], "version": np.int32(3)},
        {"data": [np.uint64(ADDRESS), np.bool_(True)]},
        {"data": (ADDRESS, 1)},
        {"stream": None},
        {"stream": 2},
    ]
    for fields in legal:
        array, stream = read(of(X, **fields), "Convolution", "src")
        assert (array.__array_interface__["data"][0], array.shape, array.dtype) == (ADDRESS, X.shape, X.dtype)
        assert array.flags.writeable != bool(fields.get("data", (0, False))[1])
        assert stream == fields.get("stream")
    empty, _ = read(of(X[:0]), "Convolution", "src")
    assert empty.shape == (0, 5, 1)
    with pytest.raises(InvalidDataTypeError, match=r"src must be an array of .*got Described \[T1\]"):
        convgrad.convolution(Described(None), W)


def _raises(name: str, error: Exception) -> Any:
    """Return an object whose attribute raises when it is read or, if it is a method, called."""

    def method(self: Any, *given: Any, **options: Any) -> Any:
        raise error

    return type("Theirs", (), {name: method})()


def _returns(name: str, value: object) -> Any:
    return type("Theirs", (), {name: lambda self, *given, **options: value})()


def _property(name: str, error: Exception) -> Any:
    def read(self: Any) -> Any:
        raise error

    return type("Theirs", (), {name: property(read)})()


class Untold(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS = (RuntimeError("first\nsecond"), KeyError("k"), MemoryError(), Untold(), NotImplementedError())
NAMES = ("__array__", "__dlpack__", "__dlpack_device__", "__array_interface__", "__cuda_array_interface__", "dtype")
THEIRS: dict[str, Callable[[], Any]] = {
    **{f"{name} raises {type(e).__name__}": lambda name=name, e=e: _raises(name, e) for name in NAMES for e in ERRORS},
    **{f"{name} is {type(e).__name__}": lambda name=name, e=e: _property(name, e) for name in NAMES for e in ERRORS},
    **{f"{name} returns {value!r}": lambda name=name, value=value: _returns(name, value)
       for name in NAMES for value in (None, 3, "x", (1,), {}, object)},
    "device of text": type("T", (), {"__dlpack__": lambda s, **o: 1, "__dlpack_device__": lambda s: "ab"}),
    "no capsule": type("T", (), {"__dlpack__": lambda s, **o: 1, "__dlpack_device__": lambda s: (1, 0)}),
    **{f"interface {value!r:.40}": lambda value=value: type("T", (), {"__array_interface__": value})()
       for value in (3, {}, {"shape": 1}, {"version": 3, "typestr": "x", "shape": (1,), "data": None},
                     {"version": 3, "typestr": "<f4", "shape": (1.5,), "data": (4096, False)})},
}  # fmt: skip


@pytest.mark.parametrize("make", THEIRS.values(), ids=THEIRS)
def test_a_protocol_that_raises_or_returns_nonsense_is_refused(make: Callable[[], Any]) -> None:
    """As an operand, as a shape and as ``out``: by an error of ours, on one line."""
    y = np.ones((1, 3, 1), np.float32)
    for call in (
        lambda: convgrad.convolution(make(), W),
        lambda: convgrad.convolution(X, make()),
        lambda: convgrad.convolution(X, W, out=make()),
        lambda: convgrad.convolution_backward_weights(X, y, make()),
    ):
        with pytest.raises(ConvgradError) as caught:
            call()
        assert str(caught.value).endswith("]")
        assert str(caught.value).isprintable()
