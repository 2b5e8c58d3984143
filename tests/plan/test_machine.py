"""The speed of reads and writes of a machine depends on how much a call moves."""

from __future__ import annotations

from math import isclose

from convgrad.plan.machine import ISAS, Machine


def test_calls_beyond_the_shared_cache_have_the_speed_of_memory() -> None:
    machine = Machine(ISAS["avx512"])
    assert machine.for_traffic(machine.l3_bytes // 2) is machine
    speeds = [machine.for_traffic(machine.l3_bytes * eighths // 8).bytes_per_ns for eighths in range(4, 12)]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] > speeds[1] > speeds[4]
    assert all(isclose(speed, machine.memory_bytes_per_ns) for speed in speeds[4:])
