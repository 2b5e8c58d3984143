"""Eleven networks that people train, written with torch.nn alone, for benchmarks of whole training steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Layers = nn.Sequential


def conv_bn(inner: int, outer: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type = nn.ReLU) -> Layers:
    """Return a convolution without bias, its normalisation and, unless ``act`` is Identity, an activation."""
    convolution = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return Layers(convolution, nn.BatchNorm2d(outer), act())


class Residual(nn.Module):
    """The sum of a body's result and its input, which goes through ``shortcut``; then an activation."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut or nn.Identity(), act or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut to the body's result."""
        return self.act(self.body(x) + self.shortcut(x))


def classifier(*features: nn.Module, channels: int, classes: int = 1000) -> Layers:
    return Layers(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def resnet(blocks: tuple[int, ...], bottleneck: bool) -> Layers:
    """Return ResNet-18 or -50."""
    layers: list[nn.Module] = [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outer = 4 * width if bottleneck else width
        for number in range(count):
            stride = 2 if stage and not number else 1
            if bottleneck:
                parts = [conv_bn(inner, width, 1), conv_bn(width, width, 3, stride)]
            else:
                parts = [conv_bn(inner, width, 3, stride)]
            body = Layers(*parts, conv_bn(width, outer, 1 if bottleneck else 3, act=nn.Identity))
            change = stride != 1 or inner != outer
            shortcut = conv_bn(inner, outer, 1, stride, act=nn.Identity) if change else None
            layers.append(Residual(body, shortcut, nn.ReLU()))
            inner = outer
    return classifier(*layers, channels=inner)


class Excited(nn.Module):
    """Squeeze and excitation: channels are weighted by what their means say."""

    def __init__(self, channels: int, squeezed: int, act: type = nn.SiLU, gate: type = nn.Sigmoid) -> None:
        super().__init__()
        self.weigh = Layers(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), act(), nn.Conv2d(squeezed, channels, 1), gate()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weigh the channels."""
        return x * self.weigh(x)


def inverted(
    inner: int, width: int, outer: int, kernel: int, stride: int, act: type, excited: nn.Module | None
) -> nn.Module:
    """Return an inverted residual block: 1x1 up to ``width`` channels, depthwise, 1x1 down."""
    layers: list[nn.Module] = [conv_bn(inner, width, 1, act=act)] if width > inner else []
    layers.append(conv_bn(width, width, kernel, stride, width, act))
    layers += [excited] if excited else []
    layers.append(conv_bn(width, outer, 1, act=nn.Identity))
    return Residual(Layers(*layers)) if stride == 1 and inner == outer else Layers(*layers)


def mobile(rows: tuple[tuple[int, ...], ...], first: int, last: int, act: type, excited: bool) -> Layers:
    """Return a network of inverted residuals; a row has expansion, channels, blocks, stride and kernel."""
    layers: list[nn.Module] = [conv_bn(3, first, 3, 2, act=act)]
    inner = first
    for expand, outer, count, stride, kernel in rows:
        for number in range(count):
            weigh = Excited(inner * expand, max(1, inner // 4)) if excited else None
            layers.append(inverted(inner, inner * expand, outer, kernel, 1 if number else stride, act, weigh))
            inner = outer
    return classifier(*layers, conv_bn(inner, last, 1, act=act), channels=last)


MOBILENET_V2 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)  # fmt: skip
EFFICIENTNET_B0 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


MOBILENET_V3 = (  # kernel, width, channels, whether excited, activation, stride
    (3, 16, 16, False, nn.ReLU, 1), (3, 64, 24, False, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 1),
    (5, 72, 40, True, nn.ReLU, 2), (5, 120, 40, True, nn.ReLU, 1), (5, 120, 40, True, nn.ReLU, 1),
    (3, 240, 80, False, nn.Hardswish, 2), (3, 200, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1),
    (3, 184, 80, False, nn.Hardswish, 1), (3, 480, 112, True, nn.Hardswish, 1), (3, 672, 112, True, nn.Hardswish, 1),
    (5, 672, 160, True, nn.Hardswish, 2), (5, 960, 160, True, nn.Hardswish, 1), (5, 960, 160, True, nn.Hardswish, 1),
)  # fmt: skip


def mobilenet_v3() -> Layers:
    """Return MobileNetV3-Large."""
    layers: list[nn.Module] = [conv_bn(3, 16, 3, 2, act=nn.Hardswish)]
    inner = 16
    for kernel, width, outer, excited, act, stride in MOBILENET_V3:
        weigh = Excited(width, width // 4, nn.ReLU, nn.Hardsigmoid) if excited else None
        layers.append(inverted(inner, width, outer, kernel, stride, act, weigh))
        inner = outer
    dense = [nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, 1000)]
    return Layers(*layers, conv_bn(inner, 960, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(), *dense)


class Wide(nn.Module):
    """A block of Wide-ResNet: normalisation and activation come before each 3x3 convolution."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.before = Layers(nn.BatchNorm2d(inner), nn.ReLU())
        self.body = Layers(conv_bn(inner, outer, 3, stride), nn.Conv2d(outer, outer, 3, 1, 1, bias=False))
        same = stride == 1 and inner == outer
        self.shortcut = nn.Identity() if same else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut to the body's result."""
        active = self.before(x)
        return self.body(active) + (x if isinstance(self.shortcut, nn.Identity) else self.shortcut(active))


def wide_resnet() -> Layers:
    """Return Wide-ResNet-16-4 for the 32x32 images of CIFAR."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    inner = 16
    for outer in (64, 128, 256):
        layers += [Wide(inner, outer, 1 if outer == 64 else 2), Wide(outer, outer, 1)]
        inner = outer
    return classifier(*layers, nn.BatchNorm2d(inner), nn.ReLU(), channels=inner, classes=10)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each position over its channels."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Pointwise(nn.Module):
    """Two linear layers on the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = Layers(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layers at each position."""
        return self.layers(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext() -> Layers:
    """Return ConvNeXt-T."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for stage, count in enumerate((3, 3, 9, 3)):
        width = 96 << stage
        if stage:
            layers += [ChannelNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        for _ in range(count):
            depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            layers.append(Residual(Layers(depthwise, ChannelNorm(width), Pointwise(width))))
    return classifier(*layers, channels=768)


class UNet(nn.Module):
    """A U-Net of four levels that halve the image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        inner = [3, *widths]
        self.down = nn.ModuleList(self.pair(inner[level], widths[level]) for level in range(5))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * one, one, 2, 2) for one in widths[:4])
        self.joined = nn.ModuleList(self.pair(2 * one, one) for one in widths[:4])
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def pair(inner: int, outer: int) -> Layers:
        """Return two 3x3 convolutions."""
        return Layers(conv_bn(inner, outer), conv_bn(outer, outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go down, and up again beside what was met on the way."""
        levels = []
        for level, layers in enumerate(self.down):
            x = layers(nn.functional.max_pool2d(x, 2) if level else x)
            levels.append(x)
        for level in range(3, -1, -1):
            x = self.joined[level](torch.cat([levels[level], self.up[level](x)], 1))
        return self.last(x)


def vgg11() -> Layers:
    layers: list[nn.Module] = []
    inner = 3
    for outer in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU()] if outer else [nn.MaxPool2d(2)]
        inner = outer or inner
    dense = [nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return Layers(*layers, nn.Flatten(), *dense)


def dcgan() -> Layers:
    """Return DCGAN's generator of 64x64 images and its discriminator, one behind the other."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4, bias=False), nn.BatchNorm2d(512), nn.ReLU()]
    for inner in (512, 256, 128):
        layers += [nn.ConvTranspose2d(inner, inner // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(inner // 2), nn.ReLU()]
    layers += [nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()]
    layers += [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for inner in (64, 128, 256):
        layers += [nn.Conv2d(inner, 2 * inner, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * inner), nn.LeakyReLU(0.2)]
    return Layers(*layers, nn.Conv2d(512, 1, 4, bias=False))


class Shuffled(nn.Module):
    """A block of ShuffleNetV2: one half of the channels, or a branch of its own, goes beside the other."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.split, half = stride == 1, outer // 2
        first = half if self.split else inner
        depthwise = [conv_bn(half, half, 3, stride, half, nn.Identity), conv_bn(half, half, 1)]
        self.right = Layers(conv_bn(first, half, 1), *depthwise)
        left = Layers(conv_bn(inner, inner, 3, stride, inner, nn.Identity), conv_bn(inner, half, 1))
        self.left = nn.Identity() if self.split else left
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Join the two halves, and shuffle their channels."""
        left, right = x.chunk(2, 1) if self.split else (x, x)
        return self.shuffle(torch.cat([self.left(left), self.right(right)], 1))


def shufflenet() -> Layers:
    """Return ShuffleNetV2 of width 1."""
    layers: list[nn.Module] = [conv_bn(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    inner = 24
    for outer, count in ((116, 4), (232, 8), (464, 4)):
        for number in range(count):
            layers.append(Shuffled(inner, outer, 1 if number else 2))
            inner = outer
    return classifier(*layers, conv_bn(inner, 1024, 1), channels=1024)


def normed(inner: int, outer: int) -> Layers:
    """Return group norm, SiLU and a 3x3 convolution."""
    return Layers(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))


class Attention(nn.Module):
    """Self-attention over the positions of an image, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.all = nn.GroupNorm(8, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to each position the values of all positions, weighted by softmax."""
        query, key, value = self.all(self.norm(x)).flatten(2).chunk(3, 1)
        weights = torch.softmax(query.transpose(1, 2) @ key * x.shape[1] ** -0.5, -1)
        return x + self.last((value @ weights.transpose(1, 2)).reshape(x.shape))


class Diffusion(nn.Module):
    """A U-Net as diffusion models have: group norm, SiLU, and attention at small images."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = width, 2 * width, 4 * width
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inner = width
        for level, outer in enumerate(widths):
            attention = Attention(outer) if level else nn.Identity()
            self.down.append(Layers(normed(inner, outer), normed(outer, outer), attention))
            inner = outer
        for outer in reversed(widths):
            self.up.append(Layers(normed(inner + outer, outer), normed(outer, outer)))
            inner = outer
        self.last = normed(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go down, and up again beside what was met on the way."""
        x, levels = self.first(x), []
        for level, layers in enumerate(self.down):
            x = layers(nn.functional.avg_pool2d(x, 2) if level else x)
            levels.append(x)
        for level, layers in zip(reversed(range(len(levels))), self.up, strict=True):
            x = layers(torch.cat([x, levels[level]], 1))
            x = nn.functional.interpolate(x, scale_factor=2, mode="nearest") if level else x
        return self.last(x)


class TimeNorm(nn.LayerNorm):
    """LayerNorm over the channels of a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each time over its channels."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def audio() -> Layers:
    """Return a classifier of sound: convolutions with one spatial axis, group norm, layer norm and GELU."""
    layers: list[nn.Module] = [nn.Conv1d(1, 64, 80, 4), nn.GroupNorm(1, 64), nn.GELU()]
    for width in (64, 128, 256):
        for _ in range(2):
            depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
            wide = [nn.Conv1d(width, 4 * width, 1), nn.GELU(), nn.Conv1d(4 * width, width, 1)]
            layers.append(Residual(Layers(depthwise, TimeNorm(width), *wide)))
        layers += [TimeNorm(width), nn.Conv1d(width, 2 * width, 4, 4)]
    return Layers(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(512, 35))


class VisionTransformer(nn.Module):
    """A classifier of patches: positions of sines and cosines, fused attention and GELU."""

    def __init__(self, width: int = 192, layers: int = 4, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = Layers(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        count, width = tokens.shape[1:]
        angles = torch.arange(count).unsqueeze(1) * 10_000 ** (-torch.arange(0, width, 2) / width)
        tokens = tokens + torch.cat([angles.sin(), angles.cos()], 1)
        return self.head(self.layers(tokens).mean(1))


class Speech(nn.Module):
    """A recognizer of speech: convolutions with one spatial axis, LSTM in both directions, and scores per time step."""

    def __init__(self, width: int = 64, letters: int = 30) -> None:
        super().__init__()
        self.frames = Layers(nn.Conv1d(1, width, 80, 40), nn.GELU(), nn.Conv1d(width, width, 8, 4), nn.GELU())
        self.memory = nn.LSTM(width, width, 2, bidirectional=True)
        self.head = nn.Linear(2 * width, letters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the letters as (time, batch, letters)."""
        return self.head(self.memory(self.frames(x).permute(2, 0, 1))[0])


@dataclass(frozen=True)
class Network:
    """How a network is made, and the shape of a batch."""

    make: Callable[[], nn.Module]
    batch: tuple[int, ...] = (8, 3, 224, 224)


NETWORKS: Mapping[str, Network] = {
    "resnet18": Network(lambda: resnet((2, 2, 2, 2), False)),
    "resnet50": Network(lambda: resnet((3, 4, 6, 3), True)),
    "mobilenet_v2": Network(lambda: mobile(MOBILENET_V2, 32, 1280, nn.ReLU6, False)),
    "mobilenet_v3": Network(mobilenet_v3),
    "wide_resnet": Network(wide_resnet, (64, 3, 32, 32)),
    "efficientnet_b0": Network(lambda: mobile(EFFICIENTNET_B0, 32, 1280, nn.SiLU, True)),
    "convnext_t": Network(convnext),
    "unet": Network(UNet),
    "vgg11": Network(vgg11),
    "dcgan": Network(dcgan, (64, 100, 1, 1)),
    "shufflenet_v2": Network(shufflenet),
    "diffusion": Network(Diffusion, (8, 3, 64, 64)),
    "audio": Network(audio, (16, 1, 16_000)),
    "vit": Network(VisionTransformer),
    "speech": Network(Speech, (16, 1, 16_000)),
}
