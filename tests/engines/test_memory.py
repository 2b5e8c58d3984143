"""The generated engine touches no byte outside its operands, its output and its scratch: guard pages on both sides."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace

import numpy as np

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.execute import Executable, executable_of
from convgrad.plan.machine import ISAS
from convgrad.spec.ordered import evaluate_in_order
from tests.support.engine_helpers import HOST, Array, empty, plans_for, prepared_weights
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Memory that ends, or begins, where a page that nobody may touch begins, or ends."""

    def __init__(self, size: int, at_end: bool) -> None:
        pages = -(-max(size, 1) // PAGE)
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for page in (0, pages + 1):
            assert _libc.mprotect(ctypes.c_void_p(self.base + page * PAGE), PAGE, 0) == 0
        start = PAGE + (pages * PAGE - size if at_end else 0)
        self.bytes = np.frombuffer(self.map, np.uint8, size, start)
        self.bytes[...] = 0xFF  # NaN in every format

    def like(self, array: Array) -> Array:
        """The array's values here, lying as they lay."""
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        packed = self.bytes.view(array.dtype).reshape([array.shape[a] for a in order])
        placed = packed.transpose(np.argsort(order))
        placed[...] = array
        return placed


@tiers("seed, isa", range(16), HOST, every=7)
def test_guard_pages(seed: int, isa: str) -> None:
    case, prepared = prepared_weights(seed)
    one = prepared.problem
    expected = evaluate_in_order(one, prepared.operands)
    for at_end in (False, True):
        keep = [Guarded(a.nbytes, at_end) for a in (*prepared.operands, expected)]
        operands = [g.like(a) for g, a in zip(keep, prepared.operands, strict=False)]
        out = keep[-1].like(empty(one))
        for plan in plans_for(one, operands, out, ISAS[isa], l2_bytes=1 << (10 + seed % 11))[::9]:
            for images in (1, 2):
                cut = replace(plan, parts=(*plan.parts[:-1], images))
                call = executable_of(cut, one, operands, out)
                scratch = Guarded(call.schedule.scratch_bytes, at_end)
                kept = Guarded(call.schedule.partial_bytes, at_end)
                out[...] = np.nan
                run_in(call, scratch, kept, operands, out)
                assert_same_bits(np.ascontiguousarray(out), expected, (case, cut, at_end))


def run_in(call: Executable, scratch: Guarded, kept: Guarded, operands: list[Array], out: Array) -> None:
    shared = kept.bytes.view(np.int64) if kept.bytes.size else None
    if shared is not None:
        shared[: call.schedule.counters] = 0
    arguments, _ = call.bound([address_of(array) for array in operands], address_of(out), shared)
    call.kernel(ctypes.addressof(arguments), scratch.bytes.ctypes.data)
