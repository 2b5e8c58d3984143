"""Measure which of PyTorch's own modules, losses and optimisers compute different bits in different settings.

python benchmarks/torch_varies.py -o benchmarks/results/torch_varies.csv
python benchmarks/torch_varies.py --table benchmarks/results/torch_varies.csv
python benchmarks/torch_varies.py --classes benchmarks/results/torch_varies*.csv > src/convgrad/torch/varying.py

The second command prints the table of docs/design/torch.md. The third prints the module that `convgrad.torch.report`
reads.

Each setting is a process: 1, 2, 3 or 8 threads of PyTorch, and on one thread each instruction set, which environment
variables of ATen, oneDNN and MKL limit. Each process computes every image and volume in two memory formats. The
operands are NumPy's, so they are the same in every setting. A row has the number of distinct results of a pass:

- threads: on 1, 2, 3 and 8 threads;
- avx: with AVX-512 and AVX2; sets: with AVX-512, AVX2 and neither;
- formats: with contiguous and channels-last operands, compared element by element.

A result of 1 proves nothing about other shapes or another processor. A result of 2 or more does vary.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from rows import asked, write_rows
from torch import nn
from torch_parts import MODULES, OPTIMISERS, Made, Shape

from convgrad.host import cpu_fields, cpu_model

Results = dict[str, torch.Tensor]

PASSES = ("forward", "backward, input", "backward, parameters")
DRAWS = (20, 30, 40)  # a sum that is one number may by chance be the same in another order
THREADS = ("1", "2", "3", "8")
SETS = {  # by what each of PyTorch's parts calls them
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
# More threads than cores must not wait for one another in loops.
SETTINGS = {("threads", count): {"OMP_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"} for count in THREADS} | {
    ("sets", name): {"OMP_NUM_THREADS": "1"} | environment for name, environment in SETS.items()
}
DISTINCT = {  # by column: the settings whose results are counted
    "threads": [("threads", count) for count in THREADS],
    "avx": [("sets", "avx512"), ("sets", "avx2")],
    "sets": [("sets", name) for name in SETS],
}
NAMES = {"threads": "threads", "avx": "AVX-512/AVX2", "sets": "AVX/none", "formats": "formats"}
AXES = {"threads": "threads", "sets": "instruction set", "formats": "memory format"}  # of a class, by column
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by rank
# The settings and the shapes, in one line of a report.
TRIED = "1, 2, 3, 8 threads; AVX-512, AVX2, neither; 2 memory formats; few and many channels and positions, odd sizes"


def drawn(shape: Shape, seed: int) -> torch.Tensor:
    """Return normal numbers as NumPy draws them: PyTorch's own vary with its instruction set."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def stored(tensor: torch.Tensor, last: bool) -> torch.Tensor:
    """Return a tensor with its channels last in memory if that is asked for and possible."""
    return tensor.contiguous(memory_format=LAST[tensor.dim()]) if last and tensor.dim() in LAST else tensor


def filled(module: nn.Module, seed: int, last: bool) -> nn.Module:
    """Give all parameters values of NumPy's."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.data = stored(parameter.data, last)
            parameter.copy_(drawn(tuple(parameter.shape), 1000 * seed + number) / 8 + 0.3)
    return module


def runs(made: Made, shapes: list[Shape] | tuple[Shape, ...], last: bool) -> Iterator[Results]:
    """Yield the results of a module, call by call, in one memory format."""
    module = filled(made(), 1, last)
    for given, draw in product([shapes] if isinstance(shapes, tuple) else [(shape,) for shape in shapes], DRAWS):
        inputs = [stored(drawn(shape, draw + number), last).requires_grad_() for number, shape in enumerate(given)]
        module.zero_grad()
        torch.manual_seed(draw)
        output = module(*inputs)
        output.backward(stored(drawn(tuple(output.shape), draw + 5), last))
        parameters = {f"parameter {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
        data = {f"input {number}": x.grad for number, x in enumerate(inputs) if x.grad is not None}
        yield {"output": output.detach(), **dict(module.named_buffers())} | data | parameters


def stepped(optimiser: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]) -> Results:
    """Return parameters after three steps."""
    parameters = [nn.Parameter(drawn(shape, seed)) for seed, shape in enumerate([(300, 400), (7,), (64, 48, 3, 3)])]
    steps = optimiser(iter(parameters))
    for number in range(3):
        for at, parameter in enumerate(parameters):
            parameter.grad = drawn(tuple(parameter.shape), 100 * number + at)
        steps.step()
    return {f"parameter {at}": parameter.detach() for at, parameter in enumerate(parameters)}


def clipped(draw: int) -> Results:
    """Return gradients whose common norm was clipped."""
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in [(300, 400), (256, 256, 3, 3)]]
    for at, parameter in enumerate(parameters):
        parameter.grad = drawn(tuple(parameter.shape), draw + at)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    return {f"gradient {at}": parameter.grad for at, parameter in enumerate(parameters)}


def random(draw: int) -> dict[str, Results]:
    """Return what PyTorch draws itself, from a seed."""
    torch.manual_seed(draw)
    layer = nn.Conv2d(48, 64, 3)
    return {
        "randn": {"output": torch.randn(300, 400)},
        "rand": {"output": torch.rand(300, 400)},
        "randperm": {"output": torch.randperm(5000)},
        "parameters of a new Conv2d": {"output": layer.weight.detach()},
    }


def kind(result: str) -> str:
    """Return the pass that a result is of."""
    name = result.split(maxsplit=1)[0]
    return dict(zip(("input", "parameter"), PASSES[1:], strict=True)).get(name, PASSES[0])


Found = dict[str, dict[str, dict[str, str]]]  # hashes by what was computed, by pass and by memory format


def hashes() -> Found:
    """Return the hash of every result in this process's setting."""
    made: dict[tuple[str, str, str], hashlib._Hash] = defaultdict(hashlib.sha256)

    def add(name: str, results: Results, only: str | None = None, last: bool = False) -> None:
        for result, tensor in results.items():
            of = made[name, only or kind(result), "last" if last else "contiguous"]
            of.update(tensor.contiguous().numpy().tobytes())  # in the order of the elements, however they are stored

    for name, (module, shapes) in MODULES.items():
        for last in (False, True) if any(len(shape) in LAST for shape in shapes) else (False,):
            for results in runs(module, shapes, last):
                add(name, results, last=last)
    for name, optimiser in OPTIMISERS.items():
        add(name, stepped(optimiser), "step")
    for draw in DRAWS:
        for name, results in random(draw).items():
            add(name, results)
        add("clip_grad_norm_", clipped(draw), "step")
    found: Found = {}
    for (name, of_pass, stored_as), digest in made.items():
        found.setdefault(name, {}).setdefault(of_pass, {})[stored_as] = digest.hexdigest()
    return found


def counts(found: Mapping[tuple[str, str], Found], name: str, of_pass: str) -> dict[str, int]:
    """Return how many results differ, by column: between settings in one memory format, and between formats in one."""
    each = {setting: results[name][of_pass] for setting, results in found.items()}
    formats = each["threads", "1"]
    return {
        axis: max(len({each[setting][stored_as] for setting in settings}) for stored_as in formats)
        for axis, settings in DISTINCT.items()
    } | {"formats": max(len(set(results.values())) for results in each.values())}


def table(path: Path) -> str:
    """Return measured rows as Markdown: the modules that varied, by what changed the bits of any pass and variant."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows_of([path]):
        found[row["what"].split(":")[0]] |= {axis for axis in NAMES if int(row[axis]) > 1}
    groups: dict[str, list[str]] = defaultdict(list)
    for name, varied in found.items():
        words = [NAMES[axis] for axis in NAMES if axis in varied and (axis != "sets" or "avx" not in varied)]
        if words:
            groups["; ".join(words)].append(name)
    lines = ["| bits differ between | modules |", "|---|---|"]
    lines += [f"| {words} | {', '.join(groups[words])} |" for words in sorted(groups, reverse=True)]
    return "\n".join(lines)


def rows_of(paths: Iterable[Path]) -> Iterator[dict[str, str]]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from csv.DictReader(file)


VARYING = '''\
"""The settings that change the bits of PyTorch's modules. ``benchmarks/torch_varies.py --classes`` writes this file.

A class varies with a setting if the setting changed the bits of any pass in f32 on any measured processor.
Settings: 1, 2, 3 and 8 threads; AVX-512, AVX2 and neither; contiguous and channels-last operands.
Shapes: few and many channels, few and many positions, sizes that no vector length divides.
A class that never varied may still vary with other shapes or on another processor.
"""

from __future__ import annotations

TRIED = "{tried}"
DEPENDENCES = ({axes})
_CLASSES = {{
{classes}}}
VARIES_WITH = {{name: frozenset(on) for on, names in _CLASSES.items() for name in names.split()}}
'''


def classes(paths: Sequence[Path]) -> str:
    """Return the source of convgrad/torch/varying.py: PyTorch's modules by what they varied with in any file."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows_of(paths):
        name = row["what"].split(":")[0]
        if isinstance(getattr(nn, name, None), type) and not name.startswith("Conv"):
            found[name] |= {axis for axis in AXES if int(row.get(axis) or 1) > 1}
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, varied in sorted(found.items()):
        groups[tuple(words for axis, words in AXES.items() if axis in varied)].append(name)
    text = ""
    for on, names in sorted(groups.items(), key=lambda item: -len(item[0])):
        key = ", ".join(f'"{words}"' for words in on) + "," * (len(on) == 1)
        lines = wrap(" ".join(names), 120, initial_indent=" " * 8, subsequent_indent=" " * 8)
        text += "\n".join((f'    ({key}): """', *lines, '    """,\n'))
    axes = ", ".join(f'"{words}"' for words in AXES.values())
    return VARYING.format(tried=TRIED, axes=axes, classes=text)


def ask(environment: Mapping[str, str]) -> Found:
    """Return the hashes of a process with a setting."""
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="print the rows of such a file as Markdown, and measure nothing")
    parser.add_argument("--classes", type=Path, nargs="+", help="print varying.py of such files, and measure nothing")
    parser.add_argument("--one", action="store_true", help="print the hashes of this process's setting, as JSON")
    options = asked(parser)
    if options.one:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # more than cores, if so asked
        print(json.dumps(hashes()))
        return
    if options.table:
        print(table(options.table))
        return
    if options.classes:
        print(classes(options.classes), end="")
        return
    found = {}
    for setting, environment in SETTINGS.items():
        found[setting] = ask(environment)
        print(f"measured: {' '.join(setting)}", file=sys.stderr)
    machine = {"torch": torch.__version__, "processor": f"{cpu_model()} (family {cpu_fields().get('cpu family')})"}
    rows = []
    for name, passes in found["threads", "1"].items():
        for of in passes:
            distinct = counts(found, name, of)
            rows.append({"what": name, "pass": of, **distinct, **machine})
            print(f"{name:32} {of:22} {distinct}")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
