"""Train published models for a step in many settings: do reports name every module whose bits differ?

pip install torchvision timm segmentation-models-pytorch
python benchmarks/torch_models.py -o benchmarks/results/torch_models.csv

Each setting is a process: 1, 2 or 3 threads, convgrad's own pool or PyTorch's, AVX2 or AVX-512 (in PyTorch too, by its
variables). Convolutions and Linear layers are convgrad's. A row is a model:

- fingerprints: distinct results of a step in all settings, of the forward and all gradients;
- named: modules that the report says may vary, or does not know;
- differing: modules without children that had other bits from equal operands;
- missed: those of them that the report does not name.

More than one fingerprint without a differing module comes from a function that the model calls, such as a mean.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import torch
from rows import asked, write_rows
from torch import nn

import convgrad
from convgrad.torch import report, reproducible

Hashes = dict[str, list[str]]

NAMES = {  # by library
    "torchvision": """
        alexnet vgg11 vgg11_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 squeezenet1_1
        googlenet mobilenet_v2 mobilenet_v3_small mobilenet_v3_large shufflenet_v2_x1_0 mnasnet1_0
        efficientnet_b0 efficientnet_v2_s regnet_y_400mf regnet_x_400mf convnext_tiny swin_t inception_v3
        segmentation.deeplabv3_resnet50 segmentation.fcn_resnet50 segmentation.lraspp_mobilenet_v3_large
        video.r3d_18 video.mc3_18 video.r2plus1d_18
    """,
    "timm": """
        tf_efficientnet_b0 mixnet_s ghostnet_100 hrnet_w18_small repvgg_a0 res2net50_26w_4s resnest14d seresnet18
        vit_tiny_patch16_224 convmixer_768_32 dla34 dpn68 darknet53 efficientvit_b0 fastvit_t8 mobileone_s0
        nfnet_f0 skresnet18 vovnet39a xception41 poolformer_s12 convnextv2_atto condconv
    """,
    "smp": "Unet UnetPlusPlus FPN PSPNet DeepLabV3Plus Linknet MAnet PAN",
}
SETTINGS = tuple(product((1, 2, 3), ("own", "openmp"), ("avx2", "avx512")))


def made(name: str) -> nn.Module:
    """Return a model with weights drawn from one seed."""
    library, _, model = name.partition(":")
    torch.manual_seed(3)
    if library == "smp":
        import segmentation_models_pytorch as smp  # noqa: PLC0415

        return getattr(smp, model)("resnet18", encoder_weights=None, classes=4)
    if library == "timm":
        import timm  # noqa: PLC0415

        known = "tf_efficientnet_cc_b0_4e" if model == "condconv" else model
        sized = {"img_size": 64} if model.startswith("vit") else {}
        return timm.create_model(known, pretrained=False, num_classes=10, **sized)
    import torchvision  # noqa: PLC0415

    room, _, model = model.rpartition(".")
    models = getattr(torchvision.models, room) if room else torchvision.models
    aux = model in ("googlenet", "inception_v3")
    settings = {"init_weights": True, "aux_logits": False} if aux else {}
    classes = {"weights_backbone": None} if room == "segmentation" else {}
    return getattr(models, model)(weights=None, **settings, **classes)


def operand(name: str) -> torch.Tensor:
    size = 128 if "inception" in name or "smp" in name else 64
    shape = (2, 3, 4, size, size) if ":video" in name else (2, 3, size, size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def step(name: str) -> tuple[str, Hashes, list[str]]:
    """Return a step's fingerprint, the hashes of each module's operands and results, and what the report names."""
    model = made(name).train()
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # a hook sees operands before they are replaced
    reproducible(model, linear=True)
    named = report(model)
    seen: Hashes = {}
    for place, module in model.named_modules():
        if not any(module.children()):
            _watch(seen, place, module)
    torch.manual_seed(5)
    result = list(_tensors(model(operand(name))))
    sum(one.square().sum() for one in result).backward()
    gradients = {place: one.grad for place, one in model.named_parameters() if one.grad is not None}
    for place, module in model.named_modules():
        own = [one.grad for one in module.parameters(recurse=False) if one.grad is not None]
        if own and f"{place} backward" in seen:
            seen[f"{place} backward"][1] += _hash(own)
    return _hash([*result, *gradients.values()]), seen, [*named.varying, *named.unknown, *named.left_out]


def _watch(seen: Hashes, place: str, module: nn.Module) -> None:
    """Keep the hashes of what a module is given and of what it returns, in the forward and in the backward."""

    def noted(kind: str, end: int, tensors: Iterable[torch.Tensor]) -> None:
        seen.setdefault(f"{place} {kind}", ["", ""])[end] += _hash(tensors)

    def before(_: nn.Module, inputs: Any) -> Any:
        given = [*_tensors(inputs), *module.parameters(recurse=False)]
        noted("forward", 0, given)
        noted("backward", 0, given)  # what a gradient is computed from, too
        return tuple(_own(one, lambda gradient: noted("backward", 1, [gradient])) for one in inputs)

    def after(_: nn.Module, __: Any, result: Any) -> None:
        noted("forward", 1, _tensors(result))
        for one in _tensors(result):
            if one.requires_grad:
                one.register_hook(lambda gradient: noted("backward", 0, [gradient]))

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _own(one: Any, hook: Callable[[torch.Tensor], None]) -> Any:
    """Return a view of a tensor, whose gradient is that of one reader alone."""
    if not isinstance(one, torch.Tensor) or not one.requires_grad:
        return one
    view = one.view_as(one)
    view.register_hook(hook)
    return view


def _tensors(found: Any) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (tuple, list, dict)):
        for one in found.values() if isinstance(found, dict) else found:
            yield from _tensors(one)


def _hash(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def child(names: list[str], threads: int, pool: str) -> None:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    for name in names:
        try:
            with convgrad.threads(threads, pool=pool):
                found: Any = step(name)
        except Exception as error:  # a model that does not run is a row
            found = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        print(json.dumps([name, found]), flush=True)


def run(names: list[str], threads: int, pool: str, isa: str) -> dict[str, Any]:
    limits = {"CONVGRAD_MAX_ISA": isa, "ATEN_CPU_CAPABILITY": isa, "OMP_WAIT_POLICY": "passive"}
    limits |= {"ONEDNN_MAX_CPU_ISA": isa.upper() + "_CORE" * (isa == "avx512"), "MKL_ENABLE_INSTRUCTIONS": isa.upper()}
    command = [sys.executable, __file__, "--child", str(threads), pool, *names]
    ran = subprocess.run(command, env=os.environ | limits, stdout=subprocess.PIPE, text=True, check=True)
    print(f"ran: {threads} threads, {pool}, {isa}", file=sys.stderr, flush=True)
    return dict(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("["))


def row(name: str, found: list[Any]) -> dict[str, object]:
    """Return a model's row from what its steps gave in all settings."""
    if errors := [one for one in found if isinstance(one, str)]:
        return {"model": name, "fingerprints": "", "named": "", "differing": "", "missed": "", "error": errors[0]}
    named = set(found[0][2])
    differing = set()
    for key in found[0][1]:
        by: dict[str, set[str]] = {}
        for _, seen, _ in found:
            before, after = seen[key]
            by.setdefault(before, set()).add(after)
        if any(len(results) > 1 for results in by.values()):
            differing.add(key.rpartition(" ")[0])
    return {
        "model": name,
        "fingerprints": len({print_ for print_, _, _ in found}),
        "named": len(named),
        "differing": len(differing),
        "missed": " ".join(sorted(differing - named)),
        "error": "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = [f"{library}:{name}" for library, names in NAMES.items() for name in names.split()]
    parser.add_argument("models", nargs="*", default=everything, metavar="LIBRARY:MODEL")
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[4:], int(sys.argv[2]), sys.argv[3])
        return
    options = asked(parser)
    results = [run(options.models, *setting) for setting in SETTINGS]
    rows = [row(name, [one[name] for one in results]) for name in options.models]
    for one in rows:
        print(*one.values(), sep=", ")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
