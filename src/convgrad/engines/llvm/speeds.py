"""The speeds of this machine that a calibration has measured: they are kept in the kernel cache, by processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convgrad.engines.llvm import object_cache
from convgrad.engines.settings import kernel_directory
from convgrad.host import cpu_fields, cpu_model
from convgrad.plan.constants import MEASURED
from convgrad.plan.machine import SPEEDS, Isa, Machine

CALIBRATED = "calibrated on this machine"
MAX_FACTOR = 1000  # between a measured speed and the assumed one; a file with other speeds is damaged


def speeds_of(isa: Isa) -> tuple[Mapping[str, Any], str]:
    """Return the speeds of this machine that are known, by field of ``Machine``, and where they are from."""
    calibrated = kept(isa)
    return assumed(isa) if calibrated is None else (calibrated, CALIBRATED)


def assumed(isa: Isa) -> tuple[Mapping[str, Any], str]:
    """Return the speeds as ``speeds_of`` does, without those of a calibration."""
    vendor, family = (cpu_fields().get(name, "") for name in ("vendor_id", "cpu family"))
    if (vendor, family, isa.lanes) in MEASURED:
        speeds = dict(zip(SPEEDS, MEASURED[vendor, family, isa.lanes], strict=True))
        return speeds, f"measured on another processor of {vendor}, family {family}"
    return {}, "assumed"


def kept(isa: Isa) -> Mapping[str, Any] | None:
    """Return the speeds of this machine that a calibration has kept, or None."""
    directory = kernel_directory()
    if directory is None or (name := _name(isa)) is None:
        return None
    speeds, assumed = object_cache.store(directory).read_value(name), Machine(isa)
    if not isinstance(speeds, dict) or speeds.keys() != set(SPEEDS):
        return None
    plausible = all(
        type(speeds[name]) in (int, float)
        and getattr(assumed, name) / MAX_FACTOR <= speeds[name] <= getattr(assumed, name) * MAX_FACTOR
        for name in SPEEDS
    )
    return {name: float(speeds[name]) for name in SPEEDS} if plausible else None


def keep(isa: Isa, speeds: Mapping[str, float]) -> str:
    """Keep the speeds of this machine in the kernel cache, and return why that is impossible, or the empty string."""
    directory, name = kernel_directory(), _name(isa)
    if directory is None or name is None:
        return "there is no kernel cache"
    store = object_cache.store(directory)
    store.write_value(name, speeds)
    return store.trouble


def _name(isa: Isa) -> str | None:
    return object_cache.key(isa, cpu_model(), speeds_of, ())
