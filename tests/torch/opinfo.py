"""PyTorch's own samples of convolutions and linear layers, as shapes and arguments.

``opinfo.json`` holds those of PyTorch 2.13, because PyTorch takes seconds to import them and then changes settings of
the process. ``python -m tests.torch.opinfo`` writes the file from the installed PyTorch; this needs expecttest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).with_suffix(".json")
OPS = [f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)] + ["linear"]
_CLASSES = [f"Conv{kind}{axes}d" for kind in ("", "Transpose") for axes in (1, 2, 3)] + ["Linear"]
MODULES = [*_CLASSES, *(f"Lazy{name}" for name in _CLASSES)]


def samples(kind: str) -> list[dict[str, Any]]:
    """Return the samples of a kind: "op", "error" or "module"."""
    return [sample for sample in json.loads(FILE.read_text()) if sample["kind"] == kind]


def identity(sample: dict[str, Any]) -> str:
    """Return a name of a sample for a test."""
    parts = [sample["name"], *(str(part).replace(" ", "") for part in (sample["args"], sample["kwargs"]))]
    return "-".join(part for part in parts if part != "{}")


def installed() -> list[dict[str, Any]]:
    """Return all samples of the installed PyTorch. Call it in a process of its own."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415
    from torch.testing._internal.common_modules import module_db  # noqa: PLC0415

    found, by_name = [], {op.name: op for op in op_db if not op.variant_test_name}
    for name in OPS:
        op = by_name[f"nn.functional.{name}"]
        for one in op.sample_inputs("cpu", torch.float32, requires_grad=False):
            found += [_row("op", name, (one.input, *one.args), one.kwargs)]
        for one in op.error_inputs("cpu") if op.error_inputs_func else ():
            given = one.sample_input
            found += [_row("error", name, (given.input, *given.args), given.kwargs, regex=one.error_regex)]
    settings = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": True}
    for info in module_db:
        if (name := info.module_cls.__name__) in MODULES:
            for one in info.module_inputs_func(info, **settings):
                made, called = one.constructor_input, one.forward_input
                given = (*called.args, *called.kwargs.values())
                found += [_row("module", name, made.args, made.kwargs, call=_plain(given))]
    return found


def _row(kind: str, name: str, args: Any, kwargs: Any, **more: Any) -> dict[str, Any]:
    words = {word: _plain(value) for word, value in kwargs.items() if word not in ("device", "dtype")}
    return {"kind": kind, "name": name, "args": _plain(args), "kwargs": words} | more


def _plain(value: Any) -> Any:
    """Return a value with tensors as their shapes and types."""
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def check() -> None:
    """Compare the file with the installed PyTorch, and try its checks of functions made of operators with ours."""
    from torch.testing._internal import composite_compliance as compliance  # noqa: PLC0415
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    import convgrad.torch as ct  # noqa: PLC0415

    assert installed() == json.loads(FILE.read_text()), f"write {FILE.name} anew by python -m tests.torch.opinfo"
    equal = torch.testing.assert_close
    for op in op_db:
        function = getattr(ct, op.name.removeprefix("nn.functional."), None)
        if function is None or not op.name.startswith("nn.functional.") or op.variant_test_name:
            continue
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
            given = [sample.input, *sample.args]
            compliance.check_with_mode(function, given, sample.kwargs, equal)
            compliance.check_all_permutations(function, given, sample.kwargs, equal)
            compliance.check_backward_formula(
                function, given, sample.kwargs, sample.output_process_fn_grad, op.gradcheck_wrapper, equal
            )
            compliance.check_forward_ad_formula(function, given, sample.kwargs, op.gradcheck_wrapper, equal)


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        check()
    else:
        FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in installed()) + "\n]\n")
