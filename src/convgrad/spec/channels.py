"""Checks of the batch, groups and channels of a call, which run before the checks of spatial extents."""

from __future__ import annotations

from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.shapes import CanonicalShapes

TENSORS: tuple[Tensor, Tensor] = ("src", "dst")


def check_batch(call: CanonicalShapes) -> None:
    """Check that weights are not empty (rule G5), and that src and dst have the same batch (rule G2)."""
    if "weights" in call.shapes and 0 in call.shapes["weights"]:  # G5
        call.refuse("G5", f"{call.names['weights']} must have no empty dimension; got {call.as_given('weights')}")
    if "src" in call.shapes and "dst" in call.shapes:
        src, dst = call.shapes["src"][0], call.shapes["dst"][0]
        if src != dst:  # G2
            call.refuse("G2", f"{call.names['src']} and {call.names['dst']} must have one batch; got {src} and {dst}")


def check_channels(call: CanonicalShapes) -> None:
    """Check rules G3, G4 and G11 about groups, channels and bias."""
    groups = call.attributes.groups
    out_channels, in_per_group = call.shapes["weights"][:2]
    src, dst = (call.shapes[t][1] if t in call.shapes else None for t in ("src", "dst"))
    weights = f"{call.names['weights']} {call.as_given('weights')} ({call.attributes.weights_format})"
    # (tensor, its channels, its channels according to the weights, the formula of the latter)
    pairs: list[tuple[Tensor, int | None, int, str]] = [
        ("src", src, in_per_group * groups, f"weights channels x groups = {in_per_group} x {groups}"),
        ("dst", dst, out_channels, f"weights channels = {out_channels}"),
    ]
    for tensor, channels, _, _ in pairs:
        if channels is not None and channels % groups:  # G3
            call.refuse("G3", f"groups must divide {call.names[tensor]} channels; got {groups} and {channels}")
    for tensor, channels, wanted, formula in pairs:
        if channels is not None and channels != wanted:  # G4
            sentence = f"{call.names[tensor]} channels must be {formula}; got {channels} and {weights}"
            call.refuse("G4", sentence + _channels_hint(call))
    if out_channels % groups:  # G3
        call.refuse("G3", f"groups must divide the channels of {call.names['dst']}; got {groups} and {weights}")
    bias = call.shapes.get("bias")
    of: Tensor = "src" if call.op.transposed else "dst"
    outputs = in_per_group * groups if call.op.transposed else out_channels
    if bias is not None and bias != (outputs,):  # G11
        call.refuse(
            "G11", f"bias must be 1-D with one value per channel of {call.names[of]}, {outputs}; got shape {bias}"
        )


def _channels_hint(call: CanonicalShapes) -> str:
    """Return a hint if the weights' channels are divided by groups on the wrong side or not at all; else ""."""
    groups = call.attributes.groups
    out_channels, in_per_group = call.shapes["weights"][:2]
    src, dst = (call.shapes[t][1] if t in call.shapes else None for t in TENSORS)
    if call.op.transposed and groups > 1 and src in (None, in_per_group) and dst in (None, out_channels * groups):
        layout = call.layouts["weights"]
        canonical = (out_channels * groups, in_per_group // groups or 1, *call.shapes["weights"][2:])
        return (
            ". They fit (in_channels / groups, out_channels), a slip of the document:"
            " ConvTranspose weights are (in_channels, out_channels / groups),"
            f" here {from_canonical(canonical, layout)} in {layout}"
        )
    if not call.op.transposed and groups > 1 and src == in_per_group:
        return f". Weights have in_channels / groups = {src // groups} where these have {src}"
    return ""
