"""Hashes of the results of all operators of both tables, by case; run as a program, for PyTorch's instruction set.

``python -m tests.training.digests SETTINGS`` prints them as JSON. SETTINGS is long, or one of the two parts of the
quick tier, 0 and 1. Part 0 calls all rows with one thread and with three, in both memory formats. Part 1 calls them
once, and caps convgrad's instruction set for one row in five: kernels of the others are in the session's cache. All
rows are called with f32, and one in five with 16 bits too, where rounding hides most differences. The program also
computes in other threads and in forks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from convgrad.torch import same_bits
from tests.support.functions import share_functions
from tests.training import fixed_cases, row_cases
from tests.training.places import places

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
FORMATS = False, True
Found = Iterator[tuple[str, str]]  # the case, which all settings share, and the hash


def digest(results: Any) -> str:
    """Return a hash of tensors' types, shapes and elements in row-major order."""
    found = hashlib.sha256()
    for one in tree_leaves(results):
        if isinstance(one, torch.Tensor):
            here = one.detach().resolve_conj().resolve_neg().contiguous()
            found.update(f"{one.dtype} {tuple(one.shape)}".encode())
            found.update(here.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:12]


def fixed(which: str) -> Found:
    every = [*product((1, 2, 3, 4), (F32, BF16), fixed_cases.SHAPES, FORMATS)]
    parts = {"0": [(1, F32, "large", False)], "1": [(3, F32, "large", True)]}
    for threads, dtype, shape, last in parts.get(which, every):
        torch.set_num_threads(threads)
        for name, call in fixed_cases.CASES.items():
            torch.manual_seed(0)
            try:
                found = call(*fixed_cases.operands(fixed_cases.SHAPES[shape], dtype, last))
            except NotImplementedError:  # PyTorch has no kernel for bf16
                continue
            yield f"{name} {dtype} {shape}", digest(found)


def rows(which: str) -> Found:
    names = [*row_cases.CASES]
    quick = [*product(names, (F32,)), *((name, (BF16, F16)[at % 2]) for at, name in enumerate(names[::5]))]
    cases = [*product(names, (F32, BF16, F16))] if which == "long" else quick
    parts = {"0": [(1, False), (3, True)], "1": [(3, True)]}
    cap = os.environ.pop("CONVGRAD_MAX_ISA", None) if which == "1" else None
    with same_bits():
        for threads, last in parts.get(which, product((1, 2, 3), FORMATS)):
            torch.set_num_threads(threads)
            for number, (name, dtype) in enumerate(cases):
                if cap:
                    os.environ["CONVGRAD_MAX_ISA"] = "" if number % 5 else cap
                draw = row_cases.drawing(dtype, last, integers=False)
                yield f"{name} {dtype}", digest(row_cases.results(name, draw))
            if cap:
                del os.environ["CONVGRAD_MAX_ISA"]
            for (name, composite), dtype in product(row_cases.COMPOSITES.items(), {dtype: 0 for _, dtype in cases}):
                torch.manual_seed(0)
                yield f"{name} {dtype}", digest(composite(row_cases.drawing(dtype, last, integers=False)))


def made(which: str, forks: bool = False) -> dict[str, list[str]]:
    """Return the hashes of each case, those of ``forks`` too if asked for."""
    found: dict[str, list[str]] = {}
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, table in (("fixed", fixed(which)), ("rows", rows(which)), ("places", places(which, forks))):
            for case, one in table:
                found.setdefault(f"{name} {case}", []).append(one)
    torch.set_num_threads(threads)
    return found


if __name__ == "__main__":
    share_functions()
    print(json.dumps(made(sys.argv[1], hasattr(os, "fork"))))
