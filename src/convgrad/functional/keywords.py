"""The keywords of the public functions: attributes of the operators, and options of a call.

``declared.py`` makes the signatures from these types, so that no function repeats the list.
"""

from __future__ import annotations

from typing import TypedDict

from convgrad.functional.types import Array, DType, PerAxis


class _Strides(TypedDict, total=False):
    strides: PerAxis


class _Pads(TypedDict, total=False):
    pads_begin: PerAxis
    pads_end: PerAxis


class _OlderPads(TypedDict, total=False):
    pads_begin: PerAxis | None
    pads_end: PerAxis | None


class _Groups(TypedDict, total=False):
    dilations: PerAxis
    auto_pad: str | None
    groups: int
    data_format: str


class _WeightsFormat(TypedDict, total=False):
    weights_format: str


class _FilterFormat(TypedDict, total=False):
    filter_format: str


class OutputOptions(TypedDict, total=False):
    """The options of all calls: the type and the memory of the result, and the threads."""

    dtype: DType | None
    out: Array | None
    accumulate: bool
    threads: int | None


class _MaxError(TypedDict, total=False):
    max_error: float | None


class ActivationKeywords(TypedDict, total=False):
    """The activation of a forward pass."""

    activation: str | None


class CallOptions(OutputOptions, _MaxError, ActivationKeywords, total=False):
    """The options of a call of an operator."""


class OutputPaddingKeywords(TypedDict, total=False):
    """The elements that are added at the end of a transposed layer's result."""

    output_padding: PerAxis | None


class AttributeKeywords(_Strides, _Pads, _Groups, _WeightsFormat, total=False):
    """The attributes of a layer."""


class GradientKeywords(AttributeKeywords, OutputOptions, _MaxError, total=False):
    """The keywords of a layer's gradient."""


class PaddedGradientKeywords(GradientKeywords, OutputPaddingKeywords, total=False):
    """The keywords of a gradient that depends on the output padding."""


class ForwardKeywords(GradientKeywords, ActivationKeywords, total=False):
    """The keywords of a convolution."""


class TransposedForwardKeywords(ForwardKeywords, OutputPaddingKeywords, total=False):
    """The keywords of a transposed convolution."""


class OlderGradientKeywords(_Strides, _OlderPads, _Groups, _WeightsFormat, OutputOptions, _MaxError, total=False):
    """The keywords of a gradient under an older name."""


class OlderFilterGradientKeywords(_Strides, _OlderPads, _Groups, _FilterFormat, OutputOptions, _MaxError, total=False):
    """The keywords of a gradient under an older name, in whose document the weights are a filter."""


class OlderPaddedGradientKeywords(OlderFilterGradientKeywords, OutputPaddingKeywords, total=False):
    """The keywords of a data gradient under an older name."""


class _DataFormat(TypedDict, total=False):
    data_format: str


class BiasGradientKeywords(_DataFormat, OutputOptions, total=False):
    """The keywords of a bias gradient."""


class BiasAddKeywords(BiasGradientKeywords, ActivationKeywords, total=False):
    """The keywords of the addition of a bias."""


class _EitherWeightsFormat(TypedDict, total=False):
    weights_format: str | None


class _Threads(TypedDict, total=False):
    threads: int | None


class _Transposed(TypedDict, total=False):
    transposed: bool
    output_padding: PerAxis | None


class _EitherAttributes(_Strides, _Pads, _Groups, _EitherWeightsFormat, total=False):
    pass


class SampleNormsKeywords(_EitherAttributes, _Threads, _Transposed, total=False):
    """The keywords of norms per sample, of a layer that is transposed or not."""


class SampleSumsKeywords(_EitherAttributes, OutputOptions, _Transposed, total=False):
    """The keywords of sums over samples, of a layer that is transposed or not."""
