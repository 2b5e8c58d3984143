"""Train ResNet-18 on the CPU and on a GPU with convgrad's convolutions, and compare the bits module by module.

PYTHONPATH=src python benchmarks/cuda_training.py -o benchmarks/results/cuda_training.csv
PYTHONPATH=src python benchmarks/cuda_training.py --devices cpu,cpu --sizes 32 --steps 3

Both begin with the same weights and take the same batches. PyTorch computes all other modules; its deterministic
algorithms are on, and TF32 is off. The program compares:

- in the first step: each module's output, the gradient of the output, and gradients of parameters;
- after all steps: each parameter and buffer;
- "alone": the results of each module if both devices get the same input and output gradient, those of the CPU.

A row of the CSV file has the number of different elements of one tensor. The program also trains twice on the GPU. It
exits with 1 if a convolution alone differs.
"""

from __future__ import annotations

import copy
import os
import sys
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA is used

import torch
from rows import asked, write_rows
from torch import nn
from torch_networks import NETWORKS

import convgrad.torch

NETWORK = "resnet18"
CLASSES = 1000
RATE, MOMENTUM = 0.01, 0.9
SHOWN = 8  # modules that differ

Tensor = Any
Tensors = dict[str, Tensor]


@dataclass
class Seen:
    """The tensors of a module in one step, on the CPU."""

    input: Tensor
    output: Tensor
    gradient: Tensor = None  # of the output


def batch(size: int, step: int, images: int) -> tuple[Tensor, Tensor]:
    """Return the images and labels of a step, which are random."""
    generator = torch.Generator().manual_seed(step)
    data = torch.randn((images, 3, size, size), generator=generator)
    return data, torch.randint(CLASSES, (images,), generator=generator)


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that compute something, with their names."""
    for name, module in model.named_modules():
        if not list(module.children()) and not isinstance(module, nn.Identity):
            yield name, module


def watch(model: nn.Module) -> tuple[dict[str, Seen], list[Any]]:
    """Record the tensors of all modules; return the records and the handles of the hooks."""
    seen: dict[str, Seen] = {}

    def see(name: str, given: Tensor, output: Tensor) -> None:
        seen[name] = Seen(given.detach().cpu().clone(), output.detach().cpu().clone())

        def keep(gradient: Tensor) -> None:
            seen[name].gradient = gradient.detach().cpu().clone()

        output.register_hook(keep)

    handles = [
        module.register_forward_hook(lambda _, given, output, name=name: see(name, given[0], output))
        for name, module in leaves(model)
    ]
    return seen, handles


def trained(model: nn.Module, device: str, size: int, options: Namespace) -> tuple[dict[str, Seen], Tensors, Tensors]:
    """Train a copy of a model; return the records and gradients of the first step, and the state after all steps."""
    model = convgrad.torch.reproducible(copy.deepcopy(model), linear=options.linear).to(device)
    optimiser = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    seen, handles = watch(model)
    gradients: Tensors = {}
    for step in range(options.steps):
        data, labels = (tensor.to(device) for tensor in batch(size, step, options.images))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data), labels).backward()
        if not step:
            gradients = {name: parameter.grad.cpu().clone() for name, parameter in model.named_parameters()}
            for handle in handles:
                handle.remove()
        optimiser.step()
    return seen, gradients, {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def alone(module: nn.Module, seen: Seen, device: str) -> Tensors:
    """Return the results of a module on a device for recorded tensors."""
    module = copy.deepcopy(module).to(device)
    given = seen.input.detach().clone().to(device).requires_grad_()
    output = module(given)
    output.backward(seen.gradient.to(device))
    made = {"output": output, "input gradient": given.grad}
    made |= {f"gradient of {name}": parameter.grad for name, parameter in module.named_parameters()}
    return {name: tensor.detach().cpu() for name, tensor in made.items()}


def different(one: Tensor, other: Tensor) -> int:
    """Return the number of elements with different bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return int(max(one.numel(), other.numel()))
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    ours, theirs = (tensor.contiguous().view(bits) for tensor in (one, other))
    return int((ours != theirs).sum())


def rows_of(size: int, devices: Sequence[str], options: Namespace) -> list[dict[str, Any]]:
    """Train on both devices; return a row for each pair of tensors."""
    torch.manual_seed(0)
    model = NETWORKS[NETWORK].make()
    ours, theirs = (trained(model, device, size, options) for device in devices)
    again = trained(model, devices[1], size, options)
    repeated = sum(not different(again[2][name], tensor) for name, tensor in theirs[2].items())
    print(f"size {size}: trained twice on {devices[1]}: {repeated} of {len(again[2])} tensors are equal", flush=True)
    kinds = {name: type(module).__name__ for name, module in leaves(model)}
    rows: list[dict[str, Any]] = []

    def compare(module: str, what: str, one: Tensor, other: Tensor) -> None:
        number = different(one, other)
        kind = kinds[module]
        rows.append(
            {"size": size, "module": module, "class": kind, "what": what, "elements": one.numel(), "different": number}
        )

    def compare_named(what: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
        for name in one:
            module, _, parameter = name.rpartition(".")
            compare(module, f"{what}{parameter}", one[name], other[name])

    for name in ours[0]:
        compare(name, "output", ours[0][name].output, theirs[0][name].output)
        compare(name, "output gradient", ours[0][name].gradient, theirs[0][name].gradient)
    compare_named("gradient of ", ours[1], theirs[1])
    compare_named("trained ", ours[2], theirs[2])
    reproducible = dict(leaves(convgrad.torch.reproducible(copy.deepcopy(model), linear=options.linear)))
    for name, seen in ours[0].items():
        one, other = (alone(reproducible[name], seen, device) for device in devices)
        for what in one:
            compare(name, f"alone, {what}", one[what], other[what])
    return rows


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print, for each class of modules and each kind of tensor, how many tensors have equal bits."""
    for kind in dict.fromkeys(row["class"] for row in rows):
        mine = [row for row in rows if row["class"] == kind]
        words = []
        for what in dict.fromkeys(row["what"] for row in mine):
            numbers = [row["different"] for row in mine if row["what"] == what]
            words.append(f"{what} {numbers.count(0)}/{len(numbers)}")
        print(f"  {kind}: {'; '.join(words)}")
    for what in ("output", "alone, output"):
        names = [f"{row['module']} ({row['class']})" for row in rows if row["what"] == what and row["different"]]
        print(f"  first modules with a different {what}: {', '.join(names[:SHOWN]) or 'none'}", flush=True)


def wrong_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the convolutions that differ alone."""
    return [
        f"{row['module']}: {row['what']}: {row['different']} of {row['elements']}"
        for row in rows
        if row["class"] == "Conv2d" and row["what"].startswith("alone") and row["different"]
    ]


def main() -> int:
    """Print how many tensors have equal bits; return the exit code."""
    parser = ArgumentParser(description="Train ResNet-18 on the CPU and on a GPU, and compare the bits.")
    parser.add_argument("--devices", default="cpu,cuda", help="two devices of PyTorch (default: %(default)s)")
    parser.add_argument("--sizes", default="32,64", help="rows and columns of the images (default: %(default)s)")
    parser.add_argument("--images", type=int, default=16, help="images of a batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps of training (default: %(default)s)")
    parser.add_argument("--linear", action="store_true", help="convgrad also computes the linear layer")
    options = asked(parser)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.filterwarnings("ignore", message=".*deterministic")
    rows: list[dict[str, Any]] = []
    for size in map(int, options.sizes.split(",")):
        begin = time.perf_counter()
        made = rows_of(size, options.devices.split(","), options)
        print(f"size {size}, {time.perf_counter() - begin:.1f} s: tensors with equal bits, by class of modules")
        print_table(made)
        rows += made
    if options.output is not None:
        write_rows(options.output, rows)
    wrong = wrong_of(rows)
    total = sum(row["class"] == "Conv2d" and row["what"].startswith("alone") for row in rows)
    print(f"convolutions alone: {total - len(wrong)} of {total} tensors are equal")
    print("\n".join(wrong[:20]), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
