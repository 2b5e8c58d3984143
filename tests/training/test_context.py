"""`same_bits`: where it holds, what it refuses, and that ATen comes back."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import convgrad.torch as ct
from convgrad.errors import ConvgradError, InvalidAttributeError, UnsupportedError
from convgrad.torch import same_bits
from convgrad.torch.training import context
from convgrad.torch.training.replacements import is_active

NUMBER = torch.tensor([float.fromhex("0x1.cf3238p+0")])  # torch.sqrt is one ulp off
IEEE = torch.tensor([float.fromhex("0x1.585a14p+0")])


def ours() -> bool:
    """Return whether convgrad computes the square root here."""
    return torch.equal(torch.cat([NUMBER] * 16).sqrt(), torch.cat([IEEE] * 16))


@pytest.fixture(autouse=True)
def _aten_comes_back() -> object:
    yield None
    assert "aten/convolution/CPU" not in torch.library._impls
    assert torch.lgamma(torch.ones(2)).shape == (2,)


def test_nested_blocks() -> None:
    with same_bits():
        with same_bits(strict=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ours()
            torch.lgamma(torch.ones(2))
        assert ours()
        with pytest.raises(UnsupportedError, match="lgamma"):
            torch.lgamma(torch.ones(2))


def test_exceptions_restore() -> None:
    for error in (KeyboardInterrupt, ValueError, SystemExit):
        with pytest.raises(error), same_bits():
            raise error


def test_decorated_function_calls_itself() -> None:
    @same_bits()
    def count(depth: int) -> int:
        assert ours()
        return 1 + count(depth - 1) if depth else 0

    assert count(3) == 3


def test_generator_that_is_never_finished() -> None:
    def batches() -> object:
        with same_bits():
            yield ours()
            yield ours()

    generator = batches()
    assert next(generator)
    generator.close()


def test_generator_closed_in_another_context() -> None:
    def batches() -> object:
        with same_bits():
            yield

    async def begin() -> object:
        generator = batches()
        next(generator)
        return generator

    generator = asyncio.run(begin())
    generator.close()


def test_block_left_in_another_thread() -> None:
    errors: list[str] = []

    def leave() -> None:
        try:
            block.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(str(error))

    block = same_bits()
    with block:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert ours()
    assert errors == ["same_bits: this thread has not entered the block. Leave it in the thread that entered it"]
    assert not is_active()


def test_one_object_in_two_tasks() -> None:
    """The tasks leave their blocks in the order in which they entered them."""
    block, seen = same_bits(), list[bool]()

    async def task(delay: int) -> None:
        with block:
            for _ in range(delay):
                await asyncio.sleep(0)
            seen.append(ours())
        seen.append(is_active())

    async def both() -> None:
        await asyncio.gather(task(2), task(3))

    asyncio.run(both())
    assert seen == [True, False, True, False]


def test_other_threads_use_aten() -> None:
    seen: list[bool] = []
    with same_bits():
        thread = threading.Thread(target=lambda: seen.append(torch.lgamma(torch.ones(2)).numel() == 2))
        thread.start()
        thread.join()
    assert seen == [True]


def test_start_holds_in_all_threads_until_stop() -> None:
    seen: list[bool] = []
    session = same_bits().start()
    try:
        thread = threading.Thread(target=lambda: seen.append(ours()))
        thread.start()
        thread.join()
        assert seen == [True]
    finally:
        session.stop()
    session.stop()


def test_backward_of_checkpoint() -> None:
    layer = nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)
    with same_bits():
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sum().backward()
    assert x.grad is not None


def test_strict_must_be_a_bool() -> None:
    with pytest.raises(InvalidAttributeError, match=r"strict must be True or False; got 1 \[A2\]"):
        same_bits(strict=1)


def test_operator_that_varies_is_named_with_its_line() -> None:
    with same_bits(), pytest.raises(UnsupportedError, match=r"aten::lgamma may vary, at test_context.py:\d+") as caught:
        torch.lgamma(torch.ones(2))
    assert isinstance(caught.value, ConvgradError)


def test_warning_where_not_strict() -> None:
    with same_bits(strict=False), pytest.warns(UserWarning, match=r"same_bits: aten::lgamma may vary, at test_context"):
        assert torch.equal(torch.lgamma(torch.ones(2)), torch.zeros(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2, dtype=torch.float64).sum(),
        lambda: torch.ones(2, 2, dtype=torch.complex64) @ torch.ones(2, 2, dtype=torch.complex64),
        lambda: torch.ones(2, dtype=torch.complex64).sqrt(),
        lambda: torch.ones(2, 2).to_sparse() @ torch.ones(2, 2),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.float64) ** 0.7,
        lambda: torch.ones(2) ** (2 + 0j),
        lambda: torch.lerp(torch.ones(2), torch.ones(2), 1 + 0j),
        lambda: torch.addcmul(torch.ones(2), torch.ones(2), torch.ones(2), value=1 + 0j),
        lambda: torch.linalg.vector_norm(torch.ones(2), 3),
        lambda: torch.ones(2).erfc(),
        lambda: F.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8, dtype=torch.float64)] * 3),
    ],
)
def test_unserved_calls_raise(call: object) -> None:
    with same_bits(), torch.no_grad(), pytest.raises((UnsupportedError, NotImplementedError)):
        call()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")
@pytest.mark.parametrize(
    "call",
    [torch.tanh, torch.relu, lambda x: x + x, lambda x: x.softmax(-1), lambda x: F.avg_pool2d(x, 2), lambda x: x * x],
)
def test_tensors_of_onednn_are_refused(call: Callable[[torch.Tensor], object]) -> None:
    given = torch.ones(1, 2, 4, 4).to_mkldnn()
    with same_bits(), pytest.raises(UnsupportedError, match="has no specified order for MkldnnCPU tensors"):
        call(given)
    call(given)
    with same_bits():
        assert given.clone().shape == given.shape


def test_integers_and_booleans_pass() -> None:
    with same_bits():
        assert torch.arange(5).sum() == 10
        assert (torch.arange(5) > 2).sum() == 2
        assert torch.add(torch.arange(3), torch.arange(3), alpha=2).tolist() == [0, 3, 6]
        assert torch.arange(6).reshape(2, 3).double().add(1).dtype == torch.float64


def test_another_library_with_the_same_operator_is_refused() -> None:
    other = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.impl("sqrt", lambda x: x, "CPU")
        refused = pytest.raises(
            UnsupportedError, match=r"no other library may replace aten::sqrt on CPU; one has \[B1\]"
        )
        with refused, same_bits():
            pass
    finally:
        other._destroy()


def test_autocast_computes_in_bf16() -> None:
    layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 5))
    x = torch.rand(4, 3, 8, 8)
    with same_bits(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
        F.cross_entropy(out, torch.arange(4)).backward()
    assert out.dtype == torch.bfloat16
    assert all(one.grad.dtype == torch.float32 and one.grad.isfinite().all() for one in layer.parameters())


def test_compiled_function_runs_eagerly() -> None:
    compiled = torch.compile(lambda x: x.sqrt(), backend="eager")
    with same_bits():
        assert torch.equal(compiled(torch.cat([NUMBER] * 16)), torch.cat([IEEE] * 16))


def test_compiled_function_cannot_enter() -> None:
    @torch.compile(backend="eager")
    def root(x: torch.Tensor) -> torch.Tensor:
        with same_bits():
            return x.sqrt()

    with pytest.raises(UnsupportedError, match=r"a compiled function cannot enter the block.* \[B1\]"):
        root(torch.ones(3))
    assert not is_active()
    with same_bits():
        assert torch.equal(root(torch.cat([NUMBER] * 16)), torch.cat([IEEE] * 16))


def test_same_bits_as_reproducible_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 5))
    x = torch.rand(4, 3, 8, 8)
    with same_bits():
        plain = model(x)
        ct.reproducible(model, linear=True)
        assert torch.equal(plain, model(x))


def test_meta_and_fake_tensors_are_untouched() -> None:
    with same_bits():
        assert torch.lgamma(torch.ones(2, device="meta")).device.type == "meta"


def test_stop_closes_its_own_session_only() -> None:
    first, second = same_bits().start(), same_bits().start()
    first.start()
    first.stop()
    first.stop()
    same_bits().stop()
    assert context.is_active()
    second.stop()
    assert not context.is_active()
