"""``convgrad info``: the data for a bug report, without personal paths."""

from __future__ import annotations

import argparse
import json
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np

import convgrad
from convgrad import engines
from convgrad.cli.console import say
from convgrad.cli.exits import DONE
from convgrad.engines import openmp
from convgrad.engines.cuda import driver
from convgrad.engines.llvm import isas, object_cache, speeds
from convgrad.engines.settings import OPENMP, OWN, count, kernel_directory
from convgrad.errors import ConvgradError
from convgrad.host import cpu_fields, cpu_model, environment, usable_cores
from convgrad.plan.reach import NO_KERNEL

_VARIABLES = ("CONVGRAD_NUM_THREADS", "CONVGRAD_MAX_ISA", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(options: argparse.Namespace) -> int:
    """Print the report."""
    report = collect()
    if options.json:
        say(json.dumps(report))
    else:
        width = max(map(len, report))
        say("\n".join(f"{name:{width}}  {value}" for name, value in report.items()))
    return DONE


def collect() -> dict[str, object]:
    """Return the report: texts by name, in the order of printing."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "convgrad": convgrad.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "ml_dtypes": metadata.version("ml_dtypes"),
        "llvmlite": _llvmlite(),
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": f"{os.cpu_count()}, {len(usable_cores())} usable",
        "gpu": _gpu(),
        "engine": _engine(),
        "bf16": _pairs(),
        "speeds": _speeds(),
        "threads": _threads(),
        "kernel cache": _kernel_cache(),
        "pool": _pool(),
        **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _llvmlite() -> str:
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return "not installed: no kernels are compiled"


def _gpu() -> str:
    """Return the first GPU, or why there is none. No context is created on it, because that takes time."""
    try:
        if reason := driver.refusal():
            return f"none ({reason})"
        first = driver.device(0)
    except ConvgradError as error:
        return f"none ({error})"
    return f"{first.name}, compute capability {'.'.join(map(str, first.capability))}"


def _engine() -> str:
    """Return a text with the available engines: generated kernels, or the reason against them, and NumPy."""
    try:
        reason = engines.generated().why_no_kernels()
    except ConvgradError as error:
        return str(error)
    if reason:
        return f"numpy only (keeps the error bound): {reason}"
    isa, left = engines.generated().detail, ", ".join(("f64", *NO_KERNEL))
    return f"generated ({isa}: same bits everywhere); numpy for {left} (keeps the error bound)"


def _pairs() -> str:
    """Return a text: how many bf16 products one instruction adds; results do not depend on it."""
    try:
        isa, reason = isas.isa(), isas.why_no_pairs()
    except ConvgradError as error:
        return str(error)
    if isa and isa.tiles:
        return "blocks of 32 terms by tiles of AMX where none can be denormal"
    how = f"one term a multiply-add: {reason}" if reason else "two terms a multiply-add where none can be denormal"
    refused = isas.why_no_tiles()
    return f"{how}; no tiles of AMX: {refused}" if refused else how


def _speeds() -> str:
    """Return where the speeds are from by which plans are chosen."""
    try:
        isa = isas.isa()
    except ConvgradError as error:
        return str(error)
    if isa is None:
        return "not used"
    _, origin = speeds.speeds_of(isa)
    return origin if origin == speeds.CALIBRATED else f"{origin} (convgrad calibrate measures them)"


def _threads() -> str:
    try:
        return str(count(None))
    except ConvgradError as error:
        return str(error)


def _kernel_cache() -> str:
    """Return the directory of the compiled kernels, their number and size, and how to remove them."""
    directory = kernel_directory()
    if directory is None:
        setting = environment(b"CONVGRAD_CACHE_DIR")
        unknown = f" (no home directory is known for {setting})" if setting.startswith("~") else ""
        return f"off: each process compiles its kernels{unknown}"
    store = object_cache.store(directory)
    place = str(directory)
    with suppress(RuntimeError, ValueError):  # no home directory, or the cache is elsewhere
        place = str(Path("~") / directory.relative_to(Path.home()))
    files = store.files()
    size = sum(status.st_size for _, status in files) / 2**20
    held = f"{len(files)} files, {size:.1f} of at most {object_cache.MAX_BYTES >> 20} MiB; delete them to clear it"
    state = store.state()
    return f"{place}: {state or held}"


def _pool() -> str:
    """Return a text with the thread pools that compute, for NumPy arrays and for PyTorch tensors.

    PyTorch is imported if it is installed, because convgrad can use the threads of its OpenMP runtime.
    """
    try:
        import torch  # noqa: F401, PLC0415 - loads PyTorch's OpenMP runtime
    except Exception as error:  # a broken installation raises anything
        return f"{OWN}; PyTorch cannot be loaded: {type(error).__name__}"
    reason = openmp.why_not()
    return f"{OWN}; for PyTorch's tensors " + (f"too: {reason}" if reason else OPENMP)


def _cpu() -> str:
    fields = cpu_fields()
    features = set(fields.get("flags", fields.get("Features", "")).split())
    wanted = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd")
    return " ".join([cpu_model(), *(name for name in wanted if name in features)])
