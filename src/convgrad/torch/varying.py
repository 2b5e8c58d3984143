"""Which of PyTorch's own modules answer in other bits with other threads or instructions: as measured, no guess.

benchmarks/torch_varies.py measures it, forward and backward, and docs/torch.md has the table by pass. One that never
varied may still do so on other shapes or another processor.
"""

from __future__ import annotations

_CLASSES = {
    "threads and instruction set": """
        BCEWithLogitsLoss GLU GroupNorm LSTM LayerNorm Softmax Softmax2d TransformerEncoderLayer
    """,
    "threads": """
        Bilinear HuberLoss KLDivLoss L1Loss Linear MSELoss PReLU SmoothL1Loss
    """,
    "instruction set": """
        BatchNorm1d BatchNorm2d BatchNorm3d CELU CrossEntropyLoss ELU EmbeddingBag GELU GRU InstanceNorm1d
        InstanceNorm2d InstanceNorm3d LogSigmoid LogSoftmax Mish MultiheadAttention RNN SELU SiLU Sigmoid Softmin
        Softplus Tanh Tanhshrink Upsample UpsamplingBilinear2d
    """,
    "": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
        AlphaDropout AvgPool1d AvgPool2d AvgPool3d ChannelShuffle CircularPad1d CircularPad2d CircularPad3d
        ConstantPad1d ConstantPad2d ConstantPad3d CosineSimilarity Dropout Dropout2d Embedding Flatten Fold Hardshrink
        Hardsigmoid Hardswish Hardtanh Identity LPPool2d LeakyReLU LocalResponseNorm MaxPool1d MaxPool2d MaxPool3d
        NLLLoss PairwiseDistance PixelShuffle PixelUnshuffle RMSNorm ReLU ReLU6 ReflectionPad1d ReflectionPad2d
        ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Softshrink Softsign Threshold Unfold
        UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
    """,
}
DEPENDENCES = tuple(filter(None, _CLASSES))
VARIES_WITH = {name: dependence for dependence, names in _CLASSES.items() for name in names.split()}
