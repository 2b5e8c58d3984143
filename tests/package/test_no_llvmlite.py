"""Where llvmlite cannot be had: everything but kernels works, and says what then does not hold."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np

from tests.support.children import in_child

LINE = "BWD_W f32 NXC mb2ic4ih8oc6oh8kh3ph1"


class Hidden:
    """An importer that finds no llvmlite, nor PyTorch, which ``convgrad info`` would load in 2 s."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> None:
        if name.split(".", maxsplit=1)[0] in ("llvmlite", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _no_version(name: str, known: Any = metadata.version) -> str:
    if name == "llvmlite":
        raise metadata.PackageNotFoundError(name)
    return str(known(name))


def told() -> None:
    """Print what a process says and computes that has no llvmlite."""
    sys.meta_path.insert(0, Hidden())  # type: ignore[arg-type]
    metadata.version = _no_version  # type: ignore[assignment]
    import convgrad  # noqa: PLC0415 - after llvmlite is hidden
    from convgrad.cli import main  # noqa: PLC0415
    from convgrad.verify import check  # noqa: PLC0415

    rng = np.random.default_rng(0)
    src, weights = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 8, 8, 4), (3, 3, 4, 6)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dst = convgrad.convolution(src, weights, auto_pad="same_upper")
        data = convgrad.convolution_backward_data(dst, weights, src.shape, auto_pad="same_upper")
    layer = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper", "weights_shape": [3, 3, 4, 6]}
    try:
        pieces = str(convgrad.partials("ConvolutionBackwardWeights", src, dst, **layer))
    except convgrad.UnsupportedError as error:
        pieces = str(error)
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        codes = [
            main(["run", LINE, "--check", "oracle"]),
            main(["verify", LINE, "--call", "convgrad:run"]),
            main(["explain", LINE]),
            main(["info"]),
            main(["bench", LINE, "--repeat", "1"]),
        ]
    verdict = check("ConvolutionBackwardWeights", convgrad.run, src, dst, **layer)
    print(
        json.dumps(
            {
                "loaded": any(name.split(".")[0] == "llvmlite" for name in sys.modules),
                "warnings": [str(one.message) for one in caught],
                "adjoint": float((dst * dst).sum() - (data * src).sum()),
                "verdict": verdict.outcome,
                "pieces": pieces,
                "codes": codes,
                "said": said.getvalue(),
                "complained": complained.getvalue(),
            }
        )
    )


def test_all_but_kernels_works_without_llvmlite() -> None:
    found = in_child(__name__, "told")
    why = "llvmlite, which compiles kernels, cannot be loaded: No module named 'llvmlite'"
    assert not found["loaded"]
    assert found["warnings"] == [f"convgrad computes with NumPy only, slower and not to the same bits: {why}"]
    assert found["adjoint"] == 0  # of integers: <conv x, y> = <x, conv' y>, at y = conv x
    assert found["verdict"] == "ok"
    assert found["pieces"].endswith(f"got numpy: {why} [P2]")  # NumPy's sums have no order that pieces could keep
    assert found["codes"] == [0, 0, 0, 0, 2]
    assert f"numpy: {why}" in found["said"], "explain says why"
    assert "not installed: no kernels are compiled" in found["said"], "info says that llvmlite is missing"
    assert f"numpy only (keeps the error bound): {why}" in found["said"], "and who computes"
    assert f"bench compiles the loops that measure the machine's peak: {why}" in found["complained"]
