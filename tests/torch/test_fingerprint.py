"""A fingerprint is SHA-256 over lines and bytes that anybody can write: it tells all bits apart, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from convgrad.errors import InvalidDataTypeError  # noqa: E402
from convgrad.torch import fingerprint  # noqa: E402
from convgrad.torch.fingerprint import little_endian  # noqa: E402

VALUES = np.arange(6).reshape(2, 3)


def written(*tensors: tuple[str, str, str, Any]) -> str:
    """Return the hash by its definition: name, type, shape as they stand in the line; an array of the bytes."""
    digest = hashlib.sha256()
    for name, kind, shape, array in tensors:
        digest.update(f'["{name}", "{kind}", [{shape}]]\n'.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("float32", "<f4"), ("float64", "<f8"), ("float16", "<f2"), ("bfloat16", ml_dtypes.bfloat16), ("int64", "<i8"),
        ("uint8", "u1"), ("complex64", "<c8"), ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    ],
)  # fmt: skip
def test_the_bytes_are_little_endian_of_every_type(kind: str, dtype: Any) -> None:
    tensor = torch.from_numpy(VALUES).to(getattr(torch, kind))
    assert fingerprint({"a": tensor}) == written(("a", kind, "2, 3", VALUES.astype(dtype)))


def test_a_module_is_its_state_dict_sorted_by_name() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    state = model.state_dict()
    expected = [
        (name, str(t.dtype).removeprefix("torch."), ", ".join(map(str, t.shape)), t.numpy())
        for name, t in sorted(state.items())
    ]
    before = fingerprint(model)
    assert before == fingerprint(state) == written(*expected)
    assert fingerprint(dict(reversed(state.items()))) == fingerprint(model)
    assert sum("num_batches" in name for name, *_ in expected) == 1
    model(torch.ones(3, 2))  # a buffer counts batches
    assert fingerprint(model) != before


def test_tensors_without_names_are_numbered() -> None:
    one, two = torch.ones(2), torch.zeros(())
    expected = written(("0", "float32", "2", np.ones(2, "<f4")), ("1", "float32", "", np.zeros((), "<f4")))
    assert (
        fingerprint([one, two]) == fingerprint(t for t in (one, two)) == fingerprint({"1": two, "0": one}) == expected
    )
    assert fingerprint(one) == fingerprint([one]) != fingerprint([two])


def test_strides_signs_and_sharing_do_not_show() -> None:
    image = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) * torch.tensor(1 + 2j)
    for other in (
        image.to(memory_format=torch.channels_last),
        image.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        image.conj().resolve_conj().conj(),
        nn.Parameter(image),
        torch.stack([image, image])[1],
    ):
        assert fingerprint([other]) == fingerprint([image])
    pending = image.conj().imag
    assert pending.is_neg()
    assert fingerprint([pending]) == fingerprint([pending.clone().resolve_neg()]) != fingerprint([image.imag])
    assert fingerprint([torch.ones(1).expand(3)]) == fingerprint([torch.ones(3)])
    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    tied["b"].weight = tied["a"].weight
    untied = {name: tensor.clone() for name, tensor in tied.state_dict().items()}
    assert fingerprint(tied) == fingerprint(untied)


def test_any_difference_shows() -> None:
    zeros = torch.zeros(2, 3)
    different = [
        {"a": zeros}, {"b": zeros}, {"a": zeros.T}, {"a": zeros.reshape(6)}, {"a": zeros.int()}, {"a": -zeros},
        {"a": zeros.bfloat16()}, {"a": zeros[:0]}, {"a": zeros[:, :0]}, {"a": zeros, "b": zeros},
        {"a": zeros + 2**-149}, {"a": zeros * float("nan")}, {}, {'a", "': zeros}, {"ä": zeros}, {"a\n": zeros},
    ]  # fmt: skip
    with pytest.warns(RuntimeWarning, match="6 NaN of 6"):
        assert len({fingerprint(one) for one in different}) == len(different)


NAN, INF = float("nan"), float("inf")
RUINED = {
    "f32": (torch.tensor([1.0, NAN, INF, -INF]), "1 NaN and 2 infinite of 4 values"),
    "f64": (torch.tensor([NAN, NAN], dtype=torch.float64), "2 NaN of 2 values"),
    "bf16": (torch.tensor([[INF], [1.0]]).bfloat16(), "1 infinite of 2 values"),
    "f16": (torch.tensor([70000.0, 1.0]).half(), "1 infinite of 2 values"),
    "f8_e4m3": (torch.tensor([NAN, 1.0]).to(torch.float8_e4m3fn), "1 NaN of 2 values"),
    "f8_e5m2": (torch.tensor([NAN, INF]).to(torch.float8_e5m2), "1 NaN and 1 infinite of 2 values"),
    "f8_e5m2fnuz": (torch.tensor([NAN, 1.0]).to(torch.float8_e5m2fnuz), "1 NaN of 2 values"),
    "complex": (torch.tensor([complex(NAN, INF), complex(1, INF), 1]), "1 NaN and 1 infinite of 3 values"),
    "conjugated": (torch.tensor([complex(1, NAN), 1]).conj(), "1 NaN of 2 values"),
    "strided": (torch.tensor([[NAN, 1.0], [2.0, 3.0]]).T[:, ::2], "1 NaN of 2 values"),
    "expanded": (torch.tensor([NAN]).expand(5), "5 NaN of 5 values"),
    "a scalar": (torch.tensor(NAN), "1 NaN of 1 value"),
    "a parameter": (nn.Parameter(torch.tensor([NAN])), "1 NaN of 1 value"),
}


@pytest.mark.parametrize(("tensor", "words"), RUINED.values(), ids=RUINED)
def test_values_that_are_not_finite_are_counted(tensor: Any, words: str) -> None:
    state = {"step": torch.tensor(3), "weight": torch.ones(2), "exp_avg": tensor, "mask": torch.tensor([True])}
    with pytest.warns(RuntimeWarning, match=f"^fingerprint: 'exp_avg' has {words}. Models that are ruined") as caught:
        fingerprint(state)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_many_ruined_tensors_are_one_warning() -> None:
    model = nn.Sequential(*[nn.BatchNorm1d(2) for _ in range(6)])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[0] = NAN
    with pytest.warns(
        RuntimeWarning, match=r"'0.bias' has 1 NaN of 2 .*, '3.weight' has .* values and 4 more tensors\. "
    ):
        fingerprint(model)


def test_finite_values_give_no_warning() -> None:
    extremes = [torch.finfo(kind).max for kind in (torch.float32, torch.float64)]
    state = [torch.tensor(extremes[0]), torch.tensor(extremes[1], dtype=torch.float64), torch.ones(2, dtype=torch.int8)]
    state += [torch.full((2,), 448.0).to(torch.float8_e4m3fn), torch.ones(0), torch.tensor([True])]
    assert fingerprint(state) == fingerprint(state)


def without_memory() -> Any:
    tensor = torch.ones(3, 2).T
    tensor.untyped_storage().resize_(0)
    return tensor


def fake() -> Any:
    with FakeTensorMode():
        return torch.ones(3)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:The PyTorch API of nested tensors")
def test_values_that_are_not_in_the_bytes_are_refused() -> None:
    """Quantized ones and twos of different scales have the same bytes."""
    for scale in (1, 2):
        with pytest.raises(InvalidDataTypeError, match="got a quantized tensor"):
            fingerprint([torch.quantize_per_tensor(torch.full((3,), float(scale)), scale, 0, torch.qint8)])
    for layout in (torch.strided, torch.jagged):
        with pytest.raises(InvalidDataTypeError, match="got a nested tensor"):
            fingerprint([torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors", "ignore:as_strided is not implemented")
def test_tensors_of_classes_that_refuse_are_refused() -> None:
    with pytest.raises(InvalidDataTypeError, match="got a MaskedTensor: "):
        fingerprint([torch.masked.masked_tensor(torch.ones(3), torch.ones(3) > 0)])


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated", "ignore::torch.jit.TracerWarning")
def test_traces_are_refused() -> None:
    def traced(value: Any) -> Any:
        fingerprint([value])
        return value

    for trace in (make_fx(traced), lambda value: torch.jit.trace(traced, (value,), check_trace=False)):
        with pytest.raises(InvalidDataTypeError, match="got a Tensor: "):
            trace(torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.uint8])
def test_axes_of_one_element_have_any_stride(dtype: Any) -> None:
    numbers = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for part in (numbers[:1, :1, :1], numbers[:1, 0, 0], numbers[:1, :, 0], numbers[1, 1:2, :1], numbers[..., 1]):
        assert fingerprint([part]) == fingerprint([torch.tensor(part.tolist(), dtype=dtype)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "model must be a module, a state_dict or tensors; got int"),
        ({"a": VALUES}, "a must be a tensor whose bytes can be read; got ndarray"),
        ({1: torch.ones(1)}, "1 must be a tensor whose bytes can be read; got a tensor whose name is not a string"),
        (nn.Linear(2, 2).named_parameters(), "0 must be a tensor whose bytes can be read; got tuple"),
        (nn.Linear(2, 2, device="meta"), "weight must be .*; got a tensor on the meta device, which has no bytes"),
        (nn.LazyLinear(2), "weight must be .*; got a lazy module's tensor"),
        ([torch.eye(2).to_sparse()], "0 must be .*; got a sparse or blocked tensor"),
        ([torch.eye(2).to_mkldnn()], "0 must be .*; got a sparse or blocked tensor"),
        ([torch._efficientzerotensor(2)], "0 must be .*; got a tensor of zeros without memory"),
        ([without_memory()], "0 must be .*; got a Tensor: its memory was freed"),
        ([fake()], "0 must be .*; got a FakeTensor: "),
    ],
)
def test_what_has_no_bytes_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InvalidDataTypeError, match=f"^fingerprint: {words}"):
        fingerprint(value)


def test_the_state_of_an_optimizer_has_a_hash() -> None:
    def state(rate: float, steps: int) -> dict[str, Any]:
        x = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.AdamW([x], lr=rate)
        for _ in range(steps):
            x.grad = torch.ones(3)
            optimizer.step()
        return optimizer.state_dict()

    states = [state(0.1, 1), state(0.2, 1), state(0.1, 2), state(0.1, 0)]
    assert len({fingerprint(each) for each in states}) == len(states)
    assert fingerprint(states[0]) == fingerprint(state(0.1, 1))
    assert fingerprint({"a": {"b": torch.ones(2)}}) == fingerprint({"a.b": torch.ones(2)})
    assert fingerprint({"a": [torch.ones(2), 1]}) != fingerprint({"a": [torch.ones(2), True]})
    with pytest.raises(InvalidDataTypeError, match=r"a\.0 must be a tensor .*; got ndarray"):
        fingerprint({"a": [VALUES]})


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1"])
def test_big_endian_bytes_are_turned(dtype: str) -> None:
    big = VALUES.ravel().astype(f">{dtype}")
    turned = little_endian(big.view(np.uint8), big.itemsize, "big")
    assert bytes(turned) == VALUES.astype(f"<{dtype}").tobytes()
    assert little_endian(big, big.itemsize, "little") is big
