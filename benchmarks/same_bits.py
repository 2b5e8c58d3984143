"""One weight gradient, its SHA-256 by threads, instruction set, layout and cut of the batch: ours and PyTorch's.

python benchmarks/same_bits.py -o benchmarks/results/same_bits.csv

``python -m tests.docs.same_bits_picture`` draws the committed rows. Each number of threads and each instruction set is
a process of its own, configured by its environment. Operands are small integers divided by a power of two, so that they
are the same bits everywhere; their sums take more bits than f32 has, so that another order of the same sum shows. Each
result is judged, too: outcome is that of ``convgrad.verify.check``, of sums in f32 in any order.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import asked, write_rows

import convgrad
from convgrad.host import cpu_model
from convgrad.verify import check

RESULTS = Path(__file__).parent / "results" / "same_bits.csv"
Array = NDArray[Any]
IMAGES, CHANNELS, POSITIONS, KERNEL = 8, 128, (28, 28), (3, 3)  # a layer of ResNet-50
LAYER = f"weight gradient, {IMAGES}x{POSITIONS[0]}x{POSITIONS[1]}, 3x3, {CHANNELS} to {CHANNELS} channels, f32"
THREADS = (1, 2, 3, 4, 8)
SETS = {"AVX-512": "avx512", "AVX2": "avx2"}
LAYOUTS = {"channels last": "NXC", "channels first": "NCX"}
CUTS = {"whole": (0, 8), "3 + 5": (0, 3, 8)}
LIBRARIES = {"convgrad": "convgrad", "torch": "PyTorch"}


def operands() -> tuple[Array, Array]:
    """Return src and diff_dst, channels first."""
    rng = np.random.default_rng(0)
    shape = (IMAGES, CHANNELS, *POSITIONS)
    src, diff_dst = (rng.integers(-4096, 4097, shape).astype(np.float32) / 4096 for _ in range(2))
    return src, diff_dst


def attributes_in(layout: str) -> dict[str, Any]:
    """Return the attributes of the call."""
    return {
        "auto_pad": "same_upper",
        "strides": [1, 1],
        "dilations": [1, 1],
        "data_format": layout,
        "weights_format": "OIX",
        "weights_shape": [CHANNELS, CHANNELS, *KERNEL],
    }


def ours(src: Array, diff_dst: Array, layout: str, cut: Sequence[int]) -> Array:
    """Return the gradient of operands that lie in a layout, the batch in pieces."""
    operator = "ConvolutionBackwardWeights"
    lies = [array if layout == "NCX" else np.ascontiguousarray(np.moveaxis(array, 1, -1)) for array in (src, diff_dst)]
    if len(cut) == 2:
        return convgrad.run(operator, *lies, **attributes_in(layout))
    parts = [
        convgrad.partials(operator, *(array[a:b] for array in lies), first=a, **attributes_in(layout))
        for a, b in pairwise(cut)
    ]
    return convgrad.join(parts)


def theirs(src: Array, diff_dst: Array, layout: str, cut: Sequence[int]) -> Array:
    """Return PyTorch's, pieces of the batch added as its backward adds into .grad."""
    import torch  # noqa: PLC0415 - a process of ours has none

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # more than cores, if so asked
    memory = torch.contiguous_format if layout == "NCX" else torch.channels_last
    x, dy = (torch.from_numpy(array).contiguous(memory_format=memory) for array in (src, diff_dst))
    weight = torch.zeros(CHANNELS, CHANNELS, *KERNEL, requires_grad=True)
    for a, b in pairwise(cut):
        torch.nn.functional.conv2d(x[a:b], weight.to(memory_format=memory), padding=1).backward(dy[a:b])
    return weight.grad.numpy()


COMPUTE: Mapping[str, Callable[[Array, Array, str, Sequence[int]], Array]] = {"convgrad": ours, "torch": theirs}


def hashes(library: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield layout, cut, hash and outcome of each call of this process."""
    src, diff_dst = operands()
    outcomes: dict[str, str] = {}
    for said, layout in LAYOUTS.items():
        for cut, at in CUTS.items():
            gradient = np.ascontiguousarray(COMPUTE[library](src, diff_dst, layout, at))
            found = hashlib.sha256(gradient.tobytes()).hexdigest()
            if found not in outcomes:
                outcomes[found] = check(
                    "ConvolutionBackwardWeights", gradient, src, diff_dst, **attributes_in("NCX")
                ).outcome
            yield said, cut, found, outcomes[found]


def measured() -> list[dict[str, Any]]:
    """Return the rows of all settings, computed each in a process of its own."""
    import torch  # noqa: PLC0415
    from torch_varies import SETS as TOLD  # noqa: PLC0415

    rows = []
    for library in LIBRARIES:
        for said, isa in SETS.items():
            for threads in THREADS:
                setting = {"CONVGRAD_MAX_ISA": isa, "CONVGRAD_NUM_THREADS": str(threads)} | TOLD[isa]
                setting |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
                command = [sys.executable, __file__, "--one", library]
                done = subprocess.run(command, env=os.environ | setting, check=True, capture_output=True, text=True)
                version = convgrad.__version__ if library == "convgrad" else torch.__version__
                rows += [
                    {"library": library, "isa": said, "threads": threads, "layout": layout, "batch": cut}
                    | {
                        "sha256": found,
                        "outcome": outcome,
                        "layer": LAYER,
                        "version": version,
                        "processor": cpu_model(),
                    }
                    for layout, cut, found, outcome in json.loads(done.stdout)
                ]
    return rows


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def distinct(rows: Sequence[Mapping[str, str]], library: str) -> list[str]:
    """Return a library's hashes, each once, in the order in which they were met."""
    return list(dict.fromkeys(row["sha256"] for row in rows if row["library"] == library))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", choices=LIBRARIES, help="print the hashes of this process's setting, as JSON")
    options = asked(parser)
    if options.one:
        print(json.dumps(list(hashes(options.one))))
        return
    rows = measured()
    if options.output:
        write_rows(options.output, rows)
    for library, name in LIBRARIES.items():
        print(f"{name}: {len(distinct(rows, library))} different of {sum(r['library'] == library for r in rows)}")


if __name__ == "__main__":
    main()
