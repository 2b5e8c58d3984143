"""The door: arrays of every kind in, arrays of every layout out, and refusals that write nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError, InvalidDataTypeError, InvalidShapeError, UnsupportedError
from convgrad.formats import FORMATS

F32, BF16 = np.float32, ml_dtypes.bfloat16
DTYPES = {name: fmt.dtype for name, fmt in FORMATS.items()}

Array = np.ndarray


@dataclass(frozen=True)
class Role:
    """A function, the shapes of its array operands, and the rest of a legal call with overlaps, pads and tails."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    rest: dict[str, Any]
    output: tuple[int, ...]

    def operands(self, dtype: Any, seed: int = 0) -> list[Array]:
        """Return small integers: every sum is exact in every format but, at most, the output's rounding."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-2, 3, shape).astype(dtype) for shape in self.shapes]

    def __call__(self, *operands: Any, **options: Any) -> Any:
        return self.function(*operands, **self.rest, **options)


CONV = {"strides": (2, 1), "pads_begin": (1, 0), "pads_end": (0, 1), "dilations": (1, 2)}
SRC, DST, WEIGHTS = (2, 6, 5, 4), (2, 3, 2, 6), (3, 3, 2, 6)  # two groups
T_SRC, T_DST, T_WEIGHTS = DST, SRC, (3, 3, 2, 6)  # the same geometry, its ends exchanged

ROLES = {
    "convolution": Role(convgrad.convolution, (SRC, WEIGHTS, (6,)), CONV | {"groups": 2}, DST),
    "backward_data": Role(
        convgrad.convolution_backward_data, (DST, WEIGHTS), CONV | {"groups": 2, "dst_shape": SRC}, SRC
    ),
    "backward_weights": Role(
        convgrad.convolution_backward_weights, (SRC, DST), CONV | {"groups": 2, "weights_shape": WEIGHTS}, WEIGHTS
    ),
    "transpose": Role(
        convgrad.conv_transpose,
        (T_SRC, T_WEIGHTS, (4,)),
        CONV | {"groups": 2, "output_padding": (0, 0)},
        T_DST,
    ),
    "transpose_backward_data": Role(
        convgrad.conv_transpose_backward_data, (T_DST, T_WEIGHTS), CONV | {"groups": 2}, T_SRC
    ),
    "transpose_backward_weights": Role(
        convgrad.conv_transpose_backward_weights,
        (T_SRC, T_DST),
        CONV | {"groups": 2, "weights_shape": T_WEIGHTS},
        T_WEIGHTS,
    ),
    "bias_add": Role(convgrad.bias_add, (SRC, (4,)), {}, SRC),
    "bias_add_backward": Role(convgrad.bias_add_backward, (DST,), {}, (6,)),
}

roles = pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
formats = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def same(got: Array, expected: Array) -> bool:
    """Tell whether two arrays have one shape, one type and the same bits."""
    return got.shape == expected.shape and got.dtype == expected.dtype and got.tobytes() == expected.tobytes()


# -- layouts in memory -------------------------------------------------------------------------------------------------


def _room(array: Array, extents: tuple[int, ...]) -> Array:
    """Return memory full of a value that would show in any result."""
    return np.full(extents, np.nan, array.dtype)


def _filled(view: Array, array: Array) -> Array:
    view[...] = array
    return view


def fortran(array: Array) -> Array:
    return array.copy(order="F")


def negative(array: Array) -> Array:
    flip = (slice(None, None, -1),) * array.ndim
    return array[flip].copy()[flip]


def offset(array: Array) -> Array:
    room = _room(array, tuple(n + 3 for n in array.shape))
    return _filled(room[tuple(slice(1, n + 1) for n in array.shape)], array)


def every_second(array: Array) -> Array:
    room = _room(array, tuple(2 * n for n in array.shape))
    return _filled(room[(slice(None, None, 2),) * array.ndim], array)


def every_second_backwards(array: Array) -> Array:
    room = _room(array, tuple(3 * n for n in array.shape))
    return _filled(room[(slice(None, None, -3),) * array.ndim], array)


def unaligned(array: Array) -> Array:
    room = np.zeros(array.nbytes + 1, np.uint8)
    view = room[1:].view(array.dtype).reshape(array.shape)
    assert not view.flags.aligned
    return _filled(view, array)


def axes_rolled(array: Array) -> Array:
    return np.moveaxis(array, 0, -1).copy().transpose(array.ndim - 1, *range(array.ndim - 1))


def record_field(array: Array) -> Array:
    """A field of packed records: a stride that is no multiple of the item size."""
    records = np.zeros(array.shape, [("pad", np.uint8), ("value", array.dtype), ("more", np.uint16)])
    return _filled(records["value"], array)


def constant(array: Array) -> Array:
    """Stride 0 along every axis."""
    return np.broadcast_to(array.ravel()[:1].reshape((1,) * array.ndim), array.shape)


def repeated(array: Array) -> Array:
    """Stride 0 along the first axis."""
    return np.broadcast_to(array[:1], array.shape)


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


WRITABLE = {
    f.__name__: f for f in (fortran, negative, offset, every_second, every_second_backwards, axes_rolled, record_field)
}
LAYOUTS = WRITABLE | {f.__name__: f for f in (unaligned, constant, repeated, read_only)}


@roles
@formats
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_operands_of_any_strides(role: Role, dtype: Any, layout: Callable[[Array], Array]) -> None:
    """Each operand by itself, and all at once; none is changed, nor is the memory around it."""
    operands = role.operands(dtype)
    for odd in (*({i} for i in range(len(operands))), {*range(len(operands))}):
        given = [layout(a) if i in odd else a for i, a in enumerate(operands)]
        plain = [np.array(a, order="C") for a in given]
        before = [_memory(a).tobytes() for a in given]
        assert same(np.ascontiguousarray(role(*given)), role(*plain)), odd
        assert [_memory(a).tobytes() for a in given] == before


def _memory(array: Array) -> Array:
    """Return the array that owns a view's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@roles
@formats
@pytest.mark.parametrize("layout", [*WRITABLE.values(), unaligned], ids=[*WRITABLE, "unaligned"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["written", "accumulated"])
def test_out_of_any_strides(role: Role, dtype: Any, layout: Callable[[Array], Array], accumulate: bool) -> None:
    """``out`` is returned, fully written over NaN or added into, and nothing around it is touched."""
    operands = role.operands(dtype)
    old = np.ones(role.output, dtype) if accumulate else np.full(role.output, np.nan, dtype)
    expected = role(*operands, out=old.copy(), accumulate=accumulate)
    out = layout(old)
    around = _memory(out).copy()
    assert role(*operands, out=out, accumulate=accumulate) is out
    assert same(np.array(out, order="C"), expected)
    out[...] = old
    assert _memory(out).tobytes() == around.tobytes()


@roles
def test_out_full_of_nan_is_fully_written(role: Role) -> None:
    """Also where no tap reaches, and where the sum is empty."""
    operands = role.operands(F32)
    fresh = role(*operands)
    assert np.isfinite(fresh).all()
    out = np.full(role.output, np.nan, F32)
    assert role(*operands, out=out) is out
    assert same(out, fresh)


EMPTY: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], dict[str, Any], tuple[int, ...]]] = {
    "weights, no images": (convgrad.convolution_backward_weights, ((0, 6, 1), (0, 4, 2)), {"weights_shape": (3, 1, 2)},
                           (3, 1, 2)),
    "weights, no positions": (convgrad.convolution_backward_weights, ((2, 2, 1), (2, 0, 2)),
                              {"weights_shape": (3, 1, 2)}, (3, 1, 2)),
    "data, no positions": (convgrad.convolution_backward_data, ((2, 0, 2), (3, 1, 2)), {"dst_shape": (2, 2, 1)},
                           (2, 2, 1)),
    "data, remainder": (convgrad.convolution_backward_data, ((1, 2, 2), (1, 1, 2)),
                        {"dst_shape": (1, 6, 1), "strides": 3}, (1, 6, 1)),
    "weights, padding alone": (convgrad.convolution_backward_weights, ((1, 1, 1), (1, 1, 1)),
                               {"weights_shape": (3, 1, 1), "pads_begin": 1, "pads_end": 1}, (3, 1, 1)),
    "bias, no images": (convgrad.bias_add_backward, ((0, 3, 2),), {}, (2,)),
}  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "rest", "output"), EMPTY.values(), ids=EMPTY)
def test_places_no_term_reaches_are_written_as_zero(
    function: Callable[..., Any],
    shapes: tuple[tuple[int, ...], ...],
    rest: dict[str, Any],
    output: tuple[int, ...],
) -> None:
    operands = [np.ones(shape, F32) for shape in shapes]
    out = np.full(output, np.nan, F32)
    function(*operands, **rest, out=out)
    assert np.isfinite(out).all()
    assert (out == 0).any()
    assert not np.signbit(out).any()
    assert same(function(*operands, **rest), out)


@roles
@pytest.mark.parametrize("name", ["f32", "f16", "f64"])
def test_foreign_byte_order_is_read(role: Role, name: str) -> None:
    native = role.operands(DTYPES[name])
    foreign = [a.astype(a.dtype.newbyteorder()) for a in native]
    assert not foreign[0].dtype.isnative
    before = [a.tobytes() for a in foreign]
    assert same(role(*foreign), role(*native))
    assert same(role(foreign[0], *native[1:]), role(*native))
    assert [a.tobytes() for a in foreign] == before


# -- other objects -----------------------------------------------------------------------------------------------------


class Tensor:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Bf16Tensor:
    """A bf16 tensor of another library: NumPy's capsule of its bits, with DLPack's type code for bfloat."""

    dtype = "elsewhere.bfloat16"

    def __init__(self, array: Array) -> None:
        self.bits = array.view(np.uint16)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.bits.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # void* data; int32 device_type, device_id, ndim; then the type: uint8 code, uint8 bits
        address = pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p) + 12
        code, bits = (ctypes.c_uint8.from_address(address + i) for i in range(2))
        assert (code.value, bits.value) == (1, 16)
        code.value = 4
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class WithArray:
    """An object that NumPy can turn into an array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.array


@roles
@pytest.mark.parametrize("name", ["f32", "f16", "f64"])
def test_dlpack_is_read(role: Role, name: str) -> None:
    operands = role.operands(DTYPES[name])
    assert same(role(*map(Tensor, operands)), role(*operands))
    assert same(role(Tensor(every_second(operands[0])), *operands[1:]), role(*operands))


@roles
def test_dlpack_of_bf16_is_read(role: Role) -> None:
    operands = role.operands(BF16)
    assert same(role(*map(Bf16Tensor, operands)), role(*operands))
    assert same(role(Bf16Tensor(np.asfortranarray(operands[0])), *operands[1:]), role(*operands))


def test_dlpack_shares_memory() -> None:
    """So an ``out`` in that memory is an overlap, and a read-only tensor can be read."""
    src, weights = np.ones((1, 4, 1), F32), np.ones((1, 1, 1), F32)
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(Tensor(src), weights, out=src)
    bits = src.astype(BF16)
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(Bf16Tensor(bits), weights.astype(BF16), out=bits)
    assert same(convgrad.convolution(Tensor(read_only(src)), weights), src)


class NoDevice:
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("nothing to share")


class Raises(Tensor):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Elsewhere(Raises):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


BROKEN = {
    "on a GPU": Elsewhere(AssertionError()),
    "cannot share": Raises(BufferError("no")),
    "runtime error": Raises(RuntimeError("no")),
    "attribute error": Raises(AttributeError("no")),
    "no device": NoDevice(),
    "a class": np.ndarray,
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_dlpack_that_cannot_be_read_is_refused(value: object) -> None:
    with pytest.raises((UnsupportedError, InvalidDataTypeError), match=r"weights must .*\[(D1|T1)\]"):
        convgrad.convolution(np.ones((1, 4, 1), F32), value)


def test_dlpack_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidDataTypeError, match=r"weights must be .* got int32; .*\[T1\]"):
        convgrad.convolution(np.ones((1, 4, 1), F32), Tensor(np.ones((1, 1, 1), np.int32)))


def test_nested_lists_are_f64() -> None:
    src, weights = [[[1.0], [2.0], [4.0]]], [[[1.0]], [[-1.0]]]
    result = convgrad.convolution(src, weights)
    assert result.dtype == np.float64
    assert result.tolist() == [[[-1.0], [-2.0]]]
    assert convgrad.bias_add(((1.5, 2.5),), [1.0, 2.0]).tolist() == [[2.5, 4.5]]
    with pytest.raises(InvalidDataTypeError, match=r"src f64, weights f32; Python lists and floats are f64 \[T2\]"):
        convgrad.convolution(src, np.ones((2, 1, 1), F32))


def test_objects_with_array_are_read() -> None:
    src, weights = np.ones((1, 4, 1), F32), np.ones((2, 1, 1), F32)
    assert same(convgrad.convolution(WithArray(src), WithArray(weights)), np.full((1, 3, 1), 2, F32))


def test_subclasses_are_read_as_arrays() -> None:
    result = convgrad.bias_add(np.arange(6.0).reshape(2, 3).view(np.recarray), np.ones(3))
    assert type(result) is np.ndarray
    assert np.array_equal(result, np.arange(1.0, 7.0).reshape(2, 3))


@roles
def test_masked_arrays_are_refused(role: Role) -> None:
    for i, _ in enumerate(role.shapes):
        operands: list[Any] = role.operands(F32)
        operands[i] = np.ma.masked_array(operands[i], False)
        with pytest.raises(InvalidDataTypeError, match=r"must be a plain array; got a masked array.*\[T1\]"):
            role(*operands)


@roles
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.bool_])
def test_integers_are_refused_with_a_hint(role: Role, dtype: Any) -> None:
    operands = role.operands(F32)
    with pytest.raises(InvalidDataTypeError, match=r"(\w+) must be .*; \1.astype\(numpy.float32\) would do \[T1\]"):
        role(operands[0].astype(dtype), *operands[1:])


@roles
@pytest.mark.parametrize("dtype", [np.complex64, np.longdouble, ml_dtypes.float8_e4m3fn, np.object_, "S4", "M8[s]"])
def test_other_types_are_refused(role: Role, dtype: Any) -> None:
    operands = role.operands(F32)
    with pytest.raises(InvalidDataTypeError, match=r"must be an array of f32, bf16, f16 or f64; got \S+ \[T1\]"):
        role(np.zeros(role.shapes[0], dtype), *operands[1:])


# -- a wrong out -------------------------------------------------------------------------------------------------------

PLAIN_SRC, PLAIN_W = np.arange(6, dtype=F32).reshape(1, 6, 1), np.ones((3, 1, 1), F32)
PLAIN_OUT = (1, 4, 1)


def _sliding(step: int) -> Array:
    """Return memory of the output's shape whose values lie ``step`` bytes apart."""
    return np.lib.stride_tricks.as_strided(np.zeros(8, F32), PLAIN_OUT, (4, step, 4), writeable=True)


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "f64": (lambda: np.zeros(PLAIN_OUT), InvalidDataTypeError, r"array of f32, .*got f64 \[T5\]"),
    "f16": (lambda: np.zeros(PLAIN_OUT, np.float16), InvalidDataTypeError, r"got f16 \[T5\]"),
    "bf16": (lambda: np.zeros(PLAIN_OUT, BF16), InvalidDataTypeError, r"got bf16 \[T5\]"),
    "int32": (lambda: np.zeros(PLAIN_OUT, np.int32), InvalidDataTypeError, r"got int32 \[T5\]"),
    "foreign": (lambda: np.zeros(PLAIN_OUT, np.dtype(F32).newbyteorder()), InvalidDataTypeError, r"foreign .*\[T5\]"),
    "list": (lambda: [[[0.0]] * 4], InvalidDataTypeError, r"got list \[T5\]"),
    "tensor": (lambda: Tensor(np.zeros(PLAIN_OUT, F32)), InvalidDataTypeError, r"got Tensor \[T5\]"),
    "bytes": (lambda: bytearray(16), InvalidDataTypeError, r"got bytearray \[T5\]"),
    "shape": (lambda: np.zeros((1, 5, 1), F32), InvalidShapeError, r"\(1, 4, 1\); got \(1, 5, 1\) \[D2\]"),
    "rank": (lambda: np.zeros((1, 4), F32), InvalidShapeError, r"got \(1, 4\) \[D2\]"),
    "broadcastable": (lambda: np.zeros((2, 4, 1), F32), InvalidShapeError, r"got \(2, 4, 1\) \[D2\]"),
    "read-only": (lambda: read_only(np.zeros(PLAIN_OUT, F32)), InvalidShapeError, r"read-only array \[D3\]"),
    "read-only view": (lambda: np.broadcast_to(np.zeros((1, 1, 1), F32), PLAIN_OUT), InvalidShapeError, r"\[D3\]"),
    "stride 0": (lambda: _sliding(0), InvalidShapeError, r"not overlap itself; got .*strides \(4, 0, 4\).*\[D4\]"),
    "stride 2": (lambda: _sliding(2), InvalidShapeError, r"not overlap itself; got .*\[D4\]"),
    "stride -3": (lambda: _sliding(1)[:, ::-1], InvalidShapeError, r"not overlap itself; got .*\[D4\]"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "error", "words"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("accumulate", [False, True], ids=["written", "accumulated"])
def test_a_wrong_out_is_refused_and_untouched(
    make: Callable[[], Any], error: type[Exception], words: str, accumulate: bool
) -> None:
    out = make()
    before = _content(out)
    with pytest.raises(error, match=words):
        convgrad.convolution(PLAIN_SRC, PLAIN_W, out=out, accumulate=accumulate)
    assert _content(out) == before


def _content(out: Any) -> object:
    out = out.array if isinstance(out, Tensor) else out
    return _memory(out).tobytes() if isinstance(out, np.ndarray) else repr(out)


def test_rows_that_share_values_are_refused() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(64, F32), (2, 4), (8, 4), writeable=True)
    with pytest.raises(InvalidShapeError, match=r"not overlap itself; got shape \(2, 4\) with strides \(8, 4\)"):
        convgrad.bias_add(np.ones((2, 4), F32), np.ones(4, F32), out=out)
    assert not out.any()


# (name, start of src, weights and out in one buffer of 40 values, in values; src has 6, weights 3, out 4)
PLACES: list[tuple[str, tuple[int, int, int], str | None]] = [
    ("in src", (0, 20, 1), "src"),
    ("end of src", (0, 20, 5), "src"),
    ("start of src", (10, 20, 7), "src"),
    ("in weights", (0, 20, 20), "weights"),
    ("end of weights", (0, 20, 22), "weights"),
    ("beside both", (0, 20, 6), None),
    ("between", (0, 10, 6), None),
    ("behind", (0, 6, 9), None),
]


@pytest.mark.parametrize(("places", "met"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_out_beside_or_over_an_operand(places: tuple[int, int, int], met: str | None) -> None:
    buffer = np.arange(40, dtype=F32)
    src, weights, out = (buffer[p : p + n].reshape(1, n, 1) for p, n in zip(places, (6, 3, 4), strict=True))
    weights = weights.reshape(3, 1, 1)
    expected = convgrad.convolution(src, weights)
    before = buffer.copy()
    if met:
        with pytest.raises(InvalidShapeError, match=rf"shared with {met} \[D4\]"):
            convgrad.convolution(src, weights, out=out)
        assert same(buffer, before)
    else:
        assert convgrad.convolution(src, weights, out=out) is out
        assert same(out, expected)


def test_out_between_the_values_of_an_operand_is_written() -> None:
    """Interleaved memory does not overlap."""
    buffer = np.arange(12, dtype=F32)
    src, out = buffer[::2].reshape(1, 6, 1), buffer[1:9:2].reshape(1, 4, 1)
    expected = convgrad.convolution(src.copy(), PLAIN_W)
    assert same(np.ascontiguousarray(convgrad.convolution(src, PLAIN_W, out=out)), expected)


def test_out_in_the_memory_of_an_operand_in_foreign_byte_order_is_refused() -> None:
    """The operand is read as a copy, but writing ``out`` would change what the caller gave."""
    foreign = np.arange(4, dtype=np.dtype(F32).newbyteorder()).reshape(1, 4, 1)
    before = foreign.tobytes()
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(foreign, np.ones((1, 1, 1), F32), out=foreign.view(F32))
    assert foreign.tobytes() == before


def test_a_masked_out_is_refused() -> None:
    """A hard mask would leave elements unwritten."""
    out = np.ma.masked_array(np.zeros(PLAIN_OUT, F32), True, hard_mask=True)
    with pytest.raises(InvalidDataTypeError, match=r"out must be .*\[T5\]"):
        convgrad.convolution(PLAIN_SRC, PLAIN_W, out=out)


@roles
def test_every_refusal_leaves_out_untouched(role: Role) -> None:
    """Also those found in attributes, shapes and options, and the options' own."""
    operands: list[Any] = role.operands(F32)
    out = np.full(role.output, 7, F32)
    refused: list[tuple[list[Any], dict[str, Any]]] = [
        (operands, {"threads": 0}),
        (operands, {"accumulate": 1}),
        (operands, {"dtype": "f16"}),
        (operands, {"dtype": "f64"}),
        ([operands[0][..., :-1], *operands[1:]], {}),
        ([operands[0].astype(np.float16), *operands[1:]], {}),
        ([operands[0].astype(np.int32), *operands[1:]], {}),
    ]
    for given, options in refused:
        with pytest.raises((InvalidAttributeError, InvalidDataTypeError, InvalidShapeError)):
            role(*given, out=out, **options)
    assert (out == 7).all()


# -- dtype, accumulate, rounding ---------------------------------------------------------------------------------------


def bits(array: Array) -> list[int]:
    return array.view(f"u{array.itemsize}").ravel().tolist()


@roles
@formats
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_dtype_is_the_output_type(role: Role, dtype: Any, name: str) -> None:
    operands = role.operands(dtype)
    exact = role(*role.operands(np.float64))
    result = role(*operands, dtype=name)
    assert result.dtype == DTYPES[name]
    assert np.array_equal(result.astype(np.float64), exact)  # small integers
    for alias in (DTYPES[name], DTYPES[name].type, str(DTYPES[name])):
        assert same(role(*operands, dtype=alias), result)
    out = np.full(role.output, np.nan, DTYPES[name])
    assert role(*operands, dtype=name, out=out) is out
    assert same(out, result)


def dot(x: list[float], y: list[float], of: Any, **options: Any) -> Array:
    """Return x . y as a weight gradient of one tap and one channel, of operands of a type."""
    shape = (1, len(x), 1)
    operands = (np.array(v, np.float64).astype(of).reshape(shape) for v in (x, y))
    if "out" in options:
        options["out"] = options["out"].reshape(1, 1, 1)
    result: Array = convgrad.convolution_backward_weights(*operands, (1, 1, 1), **options)
    return result.ravel()


SMALL = 2.0**-8, 2.0**-17  # their sum is half a last place of 1.0 in bf16, and a little more


def test_bf16_operands_give_an_f32_result_unrounded() -> None:
    assert dot([1, *SMALL], [1, 1, 1], BF16, dtype="f32").tolist() == [1 + 2**-8 + 2**-17]
    assert dot([1, *SMALL], [1, 1, 1], BF16).astype(F32).tolist() == [1 + 2**-7]
    assert dot([*SMALL], [1, 1], BF16).astype(F32).tolist() == [2**-8]  # the small one alone is rounded away


def test_accumulate_adds_once_before_the_one_rounding() -> None:
    """1 + bf16(2^-8 + 2^-17) is a tie that goes down to 1; the sum itself rounds up."""
    out = np.ones(1, BF16)
    dot([*SMALL], [1, 1], BF16, out=out, accumulate=True)
    assert out.astype(F32).tolist() == [1 + 2**-7]
    wide = np.ones(1, F32)
    dot([*SMALL], [1, 1], BF16, out=wide, accumulate=True, dtype="f32")
    assert wide.tolist() == [1 + 2**-8 + 2**-17]
    half = np.ones(1, np.float16)
    dot([2**-11, 2**-20], [1, 1], np.float16, out=half, accumulate=True)
    assert half.tolist() == [1 + 2**-10]


def test_accumulate_false_ignores_the_old_value() -> None:
    out = np.full(1, np.inf, F32)
    dot([1, 2], [3, 4], F32, out=out)
    assert out.tolist() == [11]


def test_bias_enters_before_the_one_rounding() -> None:
    src, weights = np.array(SMALL).astype(BF16).reshape(1, 1, 2), np.ones((1, 2, 1), BF16)
    result = convgrad.convolution(src, weights, np.ones(1, BF16))
    assert result.astype(F32).ravel().tolist() == [1 + 2**-7]
    out = np.full((1, 1, 1), 1, BF16)
    convgrad.convolution(src, weights, np.zeros(1, BF16), out=out, accumulate=True)
    assert out.astype(F32).ravel().tolist() == [1 + 2**-7]


@roles
@formats
def test_accumulate_adds_the_fresh_result_to_the_old_value(role: Role, dtype: Any) -> None:
    operands = role.operands(dtype)
    old = np.random.default_rng(1).integers(-9, 9, role.output).astype(dtype)
    out = old.copy()
    role(*operands, out=out, accumulate=True)
    expected = old.astype(np.float64) + role(*operands).astype(np.float64)
    assert np.array_equal(out.astype(np.float64), expected)
    role(*operands, out=out, accumulate=np.True_)
    assert np.array_equal(out.astype(np.float64), 2 * expected - old.astype(np.float64))


def test_f64_operands_are_rounded_once() -> None:
    """The way to bf16 through f32 loses the last bit and then breaks the tie downwards."""
    x = [1, 2**-8, 2**-40]
    assert dot(x, [1, 1, 1], np.float64, dtype="bf16").astype(F32).tolist() == [1 + 2**-7]
    assert dot([1, 2**-11, 2**-40], [1, 1, 1], np.float64, dtype="f16").tolist() == [1 + 2**-10]
    assert dot([1, 2**-24, 2**-50], [1, 1, 1], np.float64, dtype="f32").tolist() == [1 + 2**-23]
    assert dot(x, [1, 1, 1], np.float64).tolist() == [1 + 2**-8 + 2**-40]


def test_ties_go_to_even() -> None:
    assert dot([1, 2**-8], [1, 1], BF16).astype(F32).tolist() == [1]
    assert dot([1 + 2**-7, 2**-8], [1, 1], BF16).astype(F32).tolist() == [1 + 2**-6]
    assert dot([1, 2**-11], [1, 1], np.float16).tolist() == [1]


def test_overflow_gives_infinity() -> None:
    assert dot([60000, 60000], [1, 1], np.float16).tolist() == [np.inf]
    assert dot([60000, 60000], [-1, -1], np.float16).tolist() == [-np.inf]
    assert dot([65504, 15], [1, 1], np.float16).tolist() == [65504]
    assert dot([65504, 16], [1, 1], np.float16).tolist() == [np.inf]
    assert dot([60000, 60000], [1, 1], np.float16, dtype="f32").tolist() == [120000]
    assert dot([60000, 60000, -60000], [1, 1, 1], np.float16).tolist() == [60000]  # sums are kept in f32
    assert dot([3e38, 3e38], [1, 1], F32).tolist() == [np.inf]
    assert dot([3e38, 3e38], [1, 1], BF16).astype(F32).tolist() == [np.inf]


def test_subnormals_are_kept() -> None:
    assert dot([2**-149], [1], F32).tolist() == [2**-149]
    assert dot([2**-133], [1], BF16).astype(F32).tolist() == [2**-133]
    assert dot([2**-24], [1], np.float16).tolist() == [2**-24]


QUIET = {"f32": 0x7FC00000, "bf16": 0x7FC0, "f16": 0x7E00, "f64": 0x7FF8000000000000}
PAYLOADS = {"f32": 0xFFA12345, "bf16": 0xFFA1, "f16": 0xFD23, "f64": 0xFFF4123456789ABC}


@roles
@pytest.mark.parametrize("name", QUIET)
def test_nan_leaves_as_the_canonical_quiet_nan(role: Role, name: str) -> None:
    """A NaN of any sign and payload, an inf - inf, and an old value; in ``out`` of any layout."""
    dtype = DTYPES[name]
    unsigned = f"u{dtype.itemsize}"
    for payload in (PAYLOADS[name], QUIET[name], QUIET[name] | 1 << (8 * dtype.itemsize - 1)):
        operands = role.operands(dtype)
        operands[0].view(unsigned)[...] = payload
        result = role(*operands)
        nan = np.isnan(result)
        assert nan.any()
        assert set(bits(result[nan])) == {QUIET[name]}
        wide = role(*operands, dtype="f32") if name != "f64" else role(*operands, dtype="bf16")
        assert set(bits(wide[np.isnan(wide)])) == {QUIET["f32" if name != "f64" else "bf16"]}
        out = np.zeros(role.output, dtype)
        out.view(unsigned)[...] = payload
        role(*role.operands(dtype), out=out, accumulate=True)
        assert set(bits(out)) == {QUIET[name]}


@pytest.mark.parametrize("name", QUIET)
def test_invalid_operations_give_the_canonical_quiet_nan(name: str) -> None:
    assert bits(dot([np.inf, np.inf], [1, -1], DTYPES[name])) == [QUIET[name]]
    assert bits(dot([np.inf, 1], [0, 1], DTYPES[name])) == [QUIET[name]]


ZEROS = {
    "-0 x 1": ([-0.0], [1.0]),
    "-0 x 1, many": ([-0.0] * 300, [1.0] * 300),
    "0 x -1": ([0.0], [-1.0]),
    "cancelling": ([1.0, 1.0], [1.0, -1.0]),
    "cancelling, the negative first": ([1.0, 1.0], [-1.0, 1.0]),
    "empty": ([], []),
}


@pytest.mark.parametrize(("x", "y"), ZEROS.values(), ids=ZEROS)
@formats
def test_a_zero_sum_is_positive(x: list[float], y: list[float], dtype: Any) -> None:
    assert bits(dot(x, y, dtype)) == [0]
    out = np.array([-0.0]).astype(dtype)
    dot(x, y, dtype, out=out, accumulate=True)
    assert bits(out) == [0]


@roles
@formats
def test_negative_zeros_never_leave(role: Role, dtype: Any) -> None:
    operands = role.operands(dtype)
    operands[0][...] = -0.0
    for other in operands[1:]:
        other[...] = 1
    if len(operands) == 3 or role.function is convgrad.bias_add:
        operands[-1][...] = -0.0
    assert set(bits(role(*operands))) == {0}
    out = np.full(role.output, -0.0, dtype)
    role(*operands, out=out, accumulate=True)
    assert set(bits(out)) == {0}


@roles
@formats
def test_operands_are_never_changed_and_never_returned(role: Role, dtype: Any) -> None:
    operands = role.operands(dtype)
    before = [a.tobytes() for a in operands]
    result = role(*operands)
    assert [a.tobytes() for a in operands] == before
    assert not any(np.shares_memory(result, a) for a in operands)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.flags.owndata
