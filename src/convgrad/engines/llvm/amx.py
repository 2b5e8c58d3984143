"""Intel's AMX: the permission to use its tiles, and a test that its instruction adds in the specified order."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

import numpy as np
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.tiles import TILES
from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.tiling import SIDE
from convgrad.spec.chains import sum_in_order
from convgrad.spec.order import SPLIT_TERMS, SumOrder

TILES_APART = 8  # from a tile that is tried to the next: the sums to compare with take 0.4 ms per tile
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux's numbers for x86-64


@cache
def why_not_permitted() -> str:
    """Ask Linux for the permission to use tiles, for all threads of this process; return why not, or "".

    Linux refuses if a thread has an alternative stack for signals that is too small for the registers of tiles.
    """
    if platform.system() != "Linux":
        return "only Linux is asked for the use of tiles"
    refused = ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)
    return f"Linux does not permit the use of tiles (error {ctypes.get_errno()})" if refused else ""


def other_sums(isa: Isa, a: NDArray[np.uint32], b: NDArray[np.uint32]) -> str:
    """Return how many products of tiles have other bits than the specified order, or the empty string if none has.

    ``a`` and ``b`` are bf16 pairs. Any NaN equals any NaN.
    """
    a, b = (np.ascontiguousarray(pairs.reshape(-1, SIDE, SIDE)[::TILES_APART]) for pairs in (a, b))
    c = np.empty((len(a), SIDE, SIDE), np.float32)
    (products,) = jit.functions(isa, _module, isa, products=(None, *(ctypes.c_void_p,) * 3, ctypes.c_int64))
    products(*map(address_of, (a, b, c)), len(a))
    x = _f32(a.view(np.uint16))[:, :, None]
    y = _f32(b.view(np.uint16).reshape(-1, SIDE, SIDE, 2).swapaxes(1, 2).reshape(-1, 1, SIDE, SPLIT_TERMS))
    order = SumOrder(1, 1, SPLIT_TERMS, chains=2, block=SPLIT_TERMS)
    whole = (len(a), SIDE, SIDE, SPLIT_TERMS)
    wanted = sum_in_order(np.broadcast_to(x, whole), np.broadcast_to(y, whole), order)
    same = (c.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(c) & np.isnan(wanted))
    return "" if same.all() else f"{int((~same).sum())} of {same.size} sums by tiles differ from the specified ones"


def _f32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _module(isa: Isa) -> str:
    """Return the IR of ``products``, which stores the products of ``count`` tiles of A and B."""
    module = Module()
    f = module.function("products", public=True, a="ptr", b="ptr", c="ptr", count="i64")
    tiles, step = TILES[isa.tiles](f), f.value(LINE_BYTES)
    tiles.configure(dict.fromkeys(range(3), SIDE))
    with f.loop(f.count, a=f.a, b=f.b, c=f.c) as product:
        tiles.zero(0)
        tiles.load(1, product.a, step)
        tiles.load(2, product.b, step)
        tiles.multiply(0, 1, 2)
        tiles.store(0, product.c, step)
        product.next(**{name: f.at(place, SIDE * LINE_BYTES) for name, place in product.carried.items()})
    tiles.release()
    f.done()
    return str(module)
