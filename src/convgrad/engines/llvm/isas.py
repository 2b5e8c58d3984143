"""Detection of this machine's instruction sets and cache sizes."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from convgrad.engines.llvm import jit, speeds, tried
from convgrad.engines.settings import admitted, cap, max_isa
from convgrad.float_environment import in_default_environment
from convgrad.host import cache_bytes
from convgrad.plan.constants import GHZ, PAIR_ADDS
from convgrad.plan.machine import HINTS, ISAS, Isa, Machine
from convgrad.starting import forked_with

_trying = forked_with()  # forks and ``host_isas`` take this lock before the compiler's lock, which is older


def host_isas() -> tuple[Isa, ...]:
    """Return the usable instruction sets of this machine, the widest first; warn if there are none."""
    with _trying:
        return _host_isas()


@cache
def _host_isas() -> tuple[Isa, ...]:
    working = tuple(isa for isa, reason in _tried().items() if not reason)
    if not working:
        warnings.warn(f"convgrad computes with NumPy only, slower and not to the same bits: {_why()}", stacklevel=2)
    return working


@in_default_environment
def _tried() -> dict[Isa, str]:
    """Return the instruction sets of this machine, each with the reason why it cannot be used, or "" if it can.

    An instruction set cannot be used if its bf16 pairs or its rounding have other bits than the specified ones.
    """
    return {isa: tried.why_not(isa) if isa.pairs else "" for isa in supported()}


def why_no_pairs() -> str:
    """Return why kernels on this machine do not use bf16 pairs, or the empty string if they do."""
    isa_now = isa()
    if isa_now is None:
        return "there are no kernels"
    if isa_now.pairs:
        return ""
    able = {isa: reason for isa, reason in _tried().items() if isa.pairs}
    if not able:
        return "this machine has no instruction for that"
    refused = next((f"{isa}: {reason}" for isa, reason in able.items() if reason), "")
    return refused or f"CONVGRAD_MAX_ISA={max_isa()}"


def why_no_tiles() -> str:
    """Return why kernels on this machine do not use the tiles that it has; an empty string if it has none."""
    refused = [reason for isa, reason in _tried().items() if isa.tiles]
    return (refused[0] or f"CONVGRAD_MAX_ISA={max_isa()}") if refused else ""


def _why() -> str:
    return jit.refusal() or f"this machine has none of {', '.join(ISAS)}"


@cache
def supported() -> tuple[Isa, ...]:
    """Return the instruction sets that the processor has, without the test of their bf16 pairs. This loads LLVM."""
    if jit.refusal():
        return ()
    architecture = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
    ours = architecture.get(platform.machine())
    present = {name for name, has in jit.llvm().get_host_cpu_features().items() if has}
    wanted = {isa.name: set(isa.features) - HINTS for isa in ISAS.values()}
    return tuple(
        isa for isa in ISAS.values() if isa.architecture == ours and (ours == "aarch64" or wanted[isa.name] <= present)
    )


def isa() -> Isa | None:
    """Return the instruction set that kernels use, or None if the machine has none that CONVGRAD_MAX_ISA admits."""
    return _widest(cap(), host_isas())


@cache
def _widest(text: str, usable: tuple[Isa, ...]) -> Isa | None:
    """Return the first of the usable instruction sets that a text of CONVGRAD_MAX_ISA admits."""
    limit = admitted(text)
    if limit == "numpy":
        return None
    names = list(ISAS)
    narrow = usable if limit is None else [isa for isa in usable if names.index(isa.name) >= names.index(limit)]
    return next(iter(narrow), None)


@cache
@in_default_environment
def machine(isa: Isa) -> Machine:
    """Return the description of this machine for plans with an instruction set.

    The first two caches are at most those of ``Machine``: with 2 MiB of L2 instead of 1 MiB, plans were not faster.
    """
    return _of_speeds(isa, speeds.speeds_of(isa)[0])


def uncalibrated(isa: Isa) -> Machine:
    """Return the description of this machine without the speeds that a calibration has kept."""
    return _of_speeds(isa, speeds.assumed(isa)[0])


def _of_speeds(isa: Isa, known: Mapping[str, Any]) -> Machine:
    assumed = Machine(isa, pair_adds=pair_adds(), fma_per_ns=2 * isa.lanes * GHZ)
    l1, l2 = (min(cache_bytes(level) or size, size) for level, size in ((1, assumed.l1_bytes), (2, assumed.l2_bytes)))
    return replace(assumed, l1_bytes=l1, l2_bytes=l2, l3_bytes=cache_bytes(3) or assumed.l3_bytes, **known)


def pair_adds() -> float:
    """Return how many f32 multiply-adds take the time of one bf16 pair instruction on this processor."""
    return 1.0 if jit.llvm().get_host_cpu_name().startswith("znver") else PAIR_ADDS


def why_no_isa() -> str:
    """Return why kernels have no instruction set to use."""
    if not host_isas():
        return _why()
    return f"CONVGRAD_MAX_ISA={max_isa()}, and this machine has {', '.join(isa.name for isa in host_isas())}"
