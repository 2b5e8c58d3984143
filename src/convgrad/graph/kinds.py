"""The kinds of ops that oneDNN Graph has, or had in an older release."""

from __future__ import annotations

from functools import lru_cache

from convgrad.words import meant

# Kinds whose gradient is a kind too, with Backward after its name, or with Backprop in the releases before 1.0.
_DIFFERENTIABLE = """
    Abs AvgPool BatchNormTraining BiasAdd Clamp Elu GELU HardSwish Interpolate LayerNorm LogSoftmax MaxPool Mish PReLU
    ReLU Sigmoid SoftMax SoftPlus Sqrt Tanh
"""
_OTHERS = """
    Add BatchNormForwardTraining BatchNormInference Concat ConvTranspose ConvTransposeBackpropData
    ConvTransposeBackpropFilters ConvTransposeBackwardData ConvTransposeBackwardWeights Convolution
    ConvolutionBackpropData ConvolutionBackpropFilters ConvolutionBackpropWeights ConvolutionBackwardData
    ConvolutionBackwardWeights Dequantize Divide Dropout DynamicDequantize DynamicQuantize DynamicReshape
    DynamicTranspose End Equal Erf Exp GenIndex Greater GreaterEqual GroupNorm HardSigmoid HardSigmoidBackward HardTanh
    HardTanhBackprop Index LeakyReLU Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor MatMul Maximum
    Minimum Multiply Negative NotEqual Pow PowBackprop PowBackpropExponent Quantize RMSNorm Reciprocal ReduceL1 ReduceL2
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reorder Reshape Round Rsqrt Select Sign Square SquaredDifference
    StaticReshape StaticTranspose Subtract Transpose TypeCast Wildcard
"""

KINDS = frozenset(
    {f"{kind}{end}" for kind in _DIFFERENTIABLE.split() for end in ("", "Backward", "Backprop")} | {*_OTHERS.split()}
)
KINDS -= {"BatchNormTraining"}  # its forward pass is BatchNormForwardTraining


@lru_cache(maxsize=256)
def similar(kind: str) -> str:
    """Return a hint that suggests the kind most similar to an unknown one; "" if no kind is similar.

    >>> similar("Convolutoin"), similar("FancyOp")
    ('. Did you mean Convolution?', '')
    """
    return meant(kind, sorted(KINDS), minimum=0.7)
