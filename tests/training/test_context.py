"""`same_bits`: where it holds, what it refuses, and that ATen comes back."""

from __future__ import annotations

import asyncio
import threading
import warnings

import pytest
import torch

from convgrad.errors import InvalidAttributeError, UnsupportedError
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
    for error in (KeyboardInterrupt, ValueError):
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


def test_strict_must_be_a_bool() -> None:
    with pytest.raises(InvalidAttributeError, match=r"strict must be True or False; got 1 \[A2\]"):
        same_bits(strict=1)


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


def test_stop_closes_its_own_session_only() -> None:
    first, second = same_bits().start(), same_bits().start()
    first.start()
    first.stop()
    first.stop()
    same_bits().stop()
    assert context.is_active()
    second.stop()
    assert not context.is_active()
