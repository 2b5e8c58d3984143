"""Layers of every class for tests that stress the engine, and what runs in a new process: functions and programs."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import convgrad
from convgrad.engines import openmp, settings
from convgrad.engines.llvm import execute, jit
from convgrad.formats import FORMATS
from convgrad.spec.geometry import forward_extent
from tests.support.places import ROOT

Array = NDArray[Any]
TORCH = importlib.util.find_spec("torch") is not None and sys.platform == "linux"
HANG_S = 600.0  # only what hangs takes so long, however busy the machine is
_NONE = pytest.mark.skipif(not TORCH, reason="there is no runtime of OpenMP")
POOLS = [pytest.param(settings.OWN), pytest.param(settings.OPENMP, marks=[_NONE, pytest.mark.long])]


@dataclass(frozen=True)
class Layer:
    """A gradient or a forward by its sizes; its operands are integers, so any correct result has the same bits."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    channels: tuple[int, int] = (16, 16)  # in, out
    batch: int = 1
    groups: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    type: str = "f32"
    dtype: str | None = None
    data_format: str = "NXC"
    role: str = "weights"  # what is solved for: weights, dst, src

    @property
    def weights_shape(self) -> tuple[int, ...]:
        return (*self.kernel, self.channels[0] // self.groups, self.channels[1])

    @property
    def extents_of(self) -> dict[str, tuple[int, ...]]:
        """Spatial extents of src and dst."""
        axes = zip(self.extents, self.kernel, strict=True)
        out = tuple(forward_extent(n, (k - 1) * self.dilation + 1, self.stride, 2 * self.pad) for n, k in axes)
        return {"src": self.extents, "dst": out}

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of what is solved for."""
        return self.weights_shape if self.role == "weights" else (self.batch, *self._image(self.role))

    def operands(self) -> tuple[Array, Array]:
        """Return the two that are given, in the operator's order; all images of a batch are one image in memory."""
        return tuple(self._operand(tensor) for tensor in GIVEN[self.role])

    def _image(self, tensor: str) -> tuple[int, ...]:
        channels, extents = self.channels[tensor == "dst"], self.extents_of[tensor]
        return (*extents, channels) if self.data_format == "NXC" else (channels, *extents)

    def _operand(self, tensor: str) -> Array:
        shape = self.weights_shape if tensor == "weights" else self._image(tensor)
        values = (np.arange(np.prod(shape)) % 7 - 3).astype(FORMATS[self.type].dtype).reshape(shape)
        return values if tensor == "weights" else np.broadcast_to(values, (self.batch, *shape))

    def __call__(
        self, threads: int = 1, out: Array | None = None, operands: tuple[Array, Array] | None = None
    ) -> Array:
        solve, shape = SOLVERS[self.role]
        wanted = () if shape is None else (getattr(self, shape),)
        return settings.on(
            _pool[-1], solve, *(operands or self.operands()), *wanted, strides=self.stride, pads_begin=self.pad,
            pads_end=self.pad, dilations=self.dilation, groups=self.groups, data_format=self.data_format,
            dtype=self.dtype, out=out, threads=threads,
            **({} if self.role == "weights" else {"weights_format": "XIO"}),
        )  # fmt: skip


GIVEN = {"weights": ("src", "dst"), "dst": ("src", "weights"), "src": ("dst", "weights")}
# The function that solves for a role, and which shape it is told beside its operands.
SOLVERS: dict[str, tuple[Callable[..., Array], str | None]] = {
    "weights": (convgrad.convolution_backward_weights, "weights_shape"),
    "dst": (convgrad.convolution, None),
    "src": (convgrad.convolution_backward_data, "out_shape"),
}


def compile_anew() -> None:
    """Let this process compile what it is asked for again and again: nothing is kept, in memory or in files."""
    jit.CAPACITY = execute.CAPACITY = 1
    jit.FUNCTIONS = 0
    os.environ["CONVGRAD_CACHE_DIR"] = "off"


_pool = [settings.OWN]  # whose threads layers are computed on


def use(pool: str) -> None:
    """Have layers computed on the threads of a pool from now on, as PyTorch's tensors are."""
    _pool.append(pool)
    if pool == settings.OPENMP:
        torch = importlib.util.find_spec("torch")
        for file in Path((torch and torch.origin) or "").parent.glob("lib/libgomp*"):
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)  # alone, as PyTorch itself is imported for more than a second
        if openmp.why_not():
            importlib.import_module("torch")
        assert not openmp.why_not()


def in_child(
    module: str,
    function: str,
    *arguments: Any,
    timeout: float = HANG_S,
    python: tuple[str, ...] = (),
    pool: str = settings.OWN,
) -> Any:
    """Call a function of a test module in a new interpreter; return what it printed last, as JSON."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.support.children, {module}; "
    code += f"tests.support.children.use({pool!r}); {module}.{function}(*{arguments!r})"
    command = [sys.executable, "-X", "faulthandler", *python, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else None


def run_program(module: str, *arguments: object, timeout: float = HANG_S, **environment: str) -> list[str]:
    """Run a program of the tests; return the lines that it printed, or fail with the last one if it dies."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    lines = done.stdout.splitlines() or ["it ran nothing"]
    if done.returncode:
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        pytest.fail(f"{' '.join(command[2:])} {environment}: {died} in {lines[-1]}\n{done.stderr[-1500:]}")
    return lines
