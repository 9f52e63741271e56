"""The networks of the family `headway.profiler.zoo.families.resnet`."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.resnet import ResNetConfig

EXPANSION = 4


class ResNet(nn.Module):
    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        is_video = bool(config.frames)
        self.stem = ConvNorm(3, config.base_channels, 7, stride=2, is_video=is_video, keeps_frames=True)
        self.pool = nn.MaxPool3d(3, 2, padding=1) if is_video else nn.MaxPool2d(3, 2, padding=1)
        channels = [config.base_channels]
        channels += [config.base_channels * 2**stage * EXPANSION for stage in range(len(config.blocks))]
        self.stages = nn.ModuleList(
            _stage(config, number, width_in=before, width_out=after)
            for number, (before, after) in enumerate(pairwise(channels))
        )
        self.classifier = nn.Linear(channels[-1], config.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width], of videos [batch, 3, frames, height, width], to logits [batch, classes]."""
        x = self.pool(functional.relu(self.stem(images)))
        for stage in self.stages:
            x = stage(x)
        return self.classifier(x.flatten(2).mean(dim=-1))  # type: ignore[no-any-return]


class ConvNorm(nn.Module):
    """A convolution over images or videos that divides their sides, and unless it keeps them frames, by the stride."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        is_video: bool,
        keeps_frames: bool = False,
    ) -> None:
        super().__init__()
        self.convolution: nn.Module
        if is_video:
            steps = (1 if keeps_frames else stride, stride, stride)
            self.convolution = nn.Conv3d(
                width_in, width_out, kernel, steps, padding=kernel // 2, groups=groups, bias=False
            )
        else:
            self.convolution = nn.Conv2d(
                width_in, width_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False
            )
        self.norm = nn.BatchNorm3d(width_out) if is_video else nn.BatchNorm2d(width_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3 in groups, and 1 x 1, beside a shortcut that is projected if its shape differs."""

    def __init__(self, widths: tuple[int, int, int, int], *, stride: int, groups: int, is_video: bool) -> None:
        super().__init__()
        width_in, first, second, width_out = widths
        self.first = ConvNorm(width_in, first, 1, is_video=is_video)
        self.second = ConvNorm(first, second, 3, stride=stride, groups=groups, is_video=is_video)
        self.third = ConvNorm(second, width_out, 1, is_video=is_video)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and width_in == width_out
            else ConvNorm(width_in, width_out, 1, stride=stride, is_video=is_video)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first(x))
        y = functional.relu(self.second(y))
        return functional.relu(self.third(y) + self.shortcut(x))


def _stage(config: ResNetConfig, number: int, *, width_in: int, width_out: int) -> nn.Sequential:
    """The blocks of one stage; all but the first stage halve the sides in their first block."""
    base = config.base_channels * 2**number
    return nn.Sequential(
        *(
            Bottleneck(
                (width_in if block == 0 else width_out, base * config.squeeze, base * config.width, width_out),
                stride=2 if block == 0 and number > 0 else 1,
                groups=config.groups,
                is_video=bool(config.frames),
            )
            for block in range(config.blocks[number])
        )
    )
