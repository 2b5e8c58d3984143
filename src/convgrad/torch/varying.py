"""The settings that change the bits of PyTorch's modules. ``benchmarks/torch_varies.py --classes`` writes this file.

A class varies with a setting if the setting changed the bits of any pass in f32 on any measured processor.
Settings: 1, 2, 3 and 8 threads; AVX-512, AVX2 and neither; contiguous and channels-last operands.
Shapes: few and many channels, few and many positions, sizes that no vector length divides.
A class that never varied may still vary with other shapes or on another processor.
"""

from __future__ import annotations

TRIED = "1, 2, 3, 8 threads; AVX-512, AVX2, neither; 2 memory formats; few and many channels and positions, odd sizes"
DEPENDENCES = ("threads", "instruction set", "memory format")
_CLASSES = {
    ("threads", "instruction set", "memory format"): """
        BCEWithLogitsLoss BatchNorm2d BatchNorm3d CELU ELU GELU GLU GroupNorm Mish SELU SiLU Sigmoid Softplus
    """,
    ("threads", "memory format"): """
        BCELoss HuberLoss L1Loss MSELoss PReLU PoissonNLLLoss SmoothL1Loss Softshrink
    """,
    ("threads", "instruction set"): """
        BatchNorm1d LSTM LayerNorm Softmax Softmax2d Softmin TransformerEncoderLayer
    """,
    ("instruction set", "memory format"): """
        Upsample UpsamplingBilinear2d
    """,
    ("memory format",): """
        AdaptiveAvgPool2d AdaptiveAvgPool3d AlphaDropout Dropout
    """,
    ("threads",): """
        Bilinear KLDivLoss Linear
    """,
    ("instruction set",): """
        CrossEntropyLoss EmbeddingBag GRU GRUCell InstanceNorm1d InstanceNorm2d InstanceNorm3d LogSigmoid LogSoftmax
        MultiheadAttention RNN RNNCell Tanh Tanhshrink
    """,
    (): """
        AdaptiveAvgPool1d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d
        ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
        CosineSimilarity Dropout1d Dropout2d Dropout3d Embedding Flatten Fold Hardshrink Hardsigmoid Hardswish Hardtanh
        Identity LPPool2d LeakyReLU LocalResponseNorm MaxPool1d MaxPool2d MaxPool3d NLLLoss PairwiseDistance
        PixelShuffle PixelUnshuffle RMSNorm ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d
        ReplicationPad2d ReplicationPad3d Softsign Threshold Unfold UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
    """,
}
VARIES_WITH = {name: frozenset(on) for on, names in _CLASSES.items() for name in names.split()}
