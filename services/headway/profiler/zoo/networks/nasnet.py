"""The networks of the family `headway.profiler.zoo.families.nasnet`."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.nasnet import NasNetConfig

NORM_EPS = 1e-3


@dataclass(frozen=True, slots=True)
class Output:
    """Channels of a cell's output, and how often its sides were halved since the first convolution."""

    width: int
    num_halvings: int


class NasNet(nn.Module):
    """Two reduction cells in the stem have a quarter and half of the first stack's filters; each later one doubles."""

    def __init__(self, config: NasNetConfig) -> None:
        super().__init__()
        filters = config.filters
        self.stem = nn.Sequential(
            nn.Conv2d(3, config.stem_filters, 3, stride=2, bias=False), nn.BatchNorm2d(config.stem_filters, NORM_EPS)
        )
        cells: list[tuple[type[NormalCell | ReductionCell], int]]
        cells = [(ReductionCell, filters // 4), (ReductionCell, filters // 2)]
        for scale in (1, 2, 4):
            cells += [(ReductionCell, filters * scale)] if scale > 1 else []
            cells += [(NormalCell, filters * scale)] * config.num_cells
        self.cells = nn.ModuleList()
        before = last = Output(config.stem_filters, 0)
        for kind, width in cells:
            cell = kind(before, last, width)
            self.cells.append(cell)
            before, last = last, cell.output
        self.classifier = nn.Linear(last.width, config.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, size, size] to logits [batch, classes]."""
        before = x = self.stem(images)
        for cell in self.cells:
            before, x = x, cell(before, x)
        return self.classifier(functional.relu(x).flatten(2).mean(dim=-1))  # type: ignore[no-any-return]


class NormalCell(nn.Module):
    """Keeps the sides; yields six times `filters` channels."""

    def __init__(self, before: Output, last: Output, filters: int) -> None:
        super().__init__()
        self.output = Output(6 * filters, last.num_halvings)
        self.before = _projection(before, last, filters)
        self.last = Projection(last.width, filters)
        self.last_5x5 = Separable(filters, 5)
        self.last_3x3 = Separable(filters, 3)
        self.before_5x5 = Separable(filters, 5)
        self.before_3x3 = nn.ModuleList(Separable(filters, 3) for _ in range(2))

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """Outputs of the cell before the last and of the last, [batch, channels, height, width] each."""
        before, last = self.before(before), self.last(last)
        outputs = (
            before,
            self.last_5x5(last) + self.before_3x3[0](before),
            self.before_5x5(before) + self.before_3x3[1](before),
            _average(last) + before,
            _average(before) + _average(before),
            self.last_3x3(last) + last,
        )
        return torch.cat(outputs, dim=1)


class ReductionCell(nn.Module):
    """Halves the sides; yields four times `filters` channels."""

    def __init__(self, before: Output, last: Output, filters: int) -> None:
        super().__init__()
        self.output = Output(4 * filters, last.num_halvings + 1)
        self.before = _projection(before, last, filters)
        self.last = Projection(last.width, filters)
        self.last_5x5 = Separable(filters, 5, stride=2)
        self.before_7x7 = nn.ModuleList(Separable(filters, 7, stride=2) for _ in range(2))
        self.before_5x5 = Separable(filters, 5, stride=2)
        self.reduced_3x3 = Separable(filters, 3)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """Outputs of the cell before the last and of the last, [batch, channels, height, width] each."""
        before, last = self.before(before), self.last(last)
        reduced = self.last_5x5(last) + self.before_7x7[0](before)
        largest = functional.max_pool2d(last, 3, 2, padding=1)
        pooled = largest + self.before_7x7[1](before)
        averaged = _average(last, stride=2) + self.before_5x5(before)
        outputs = (pooled, averaged, _average(reduced) + pooled, self.reduced_3x3(reduced) + largest)
        return torch.cat(outputs, dim=1)


class Projection(nn.Sequential):
    """A projection to `filters` channels."""

    def __init__(self, width: int, filters: int) -> None:
        super().__init__(nn.ReLU(), nn.Conv2d(width, filters, 1, bias=False), nn.BatchNorm2d(filters, NORM_EPS))


class HalvingProjection(nn.Module):
    """To `filters` channels, half of them from the pixels of even rows and columns, half from those of odd ones."""

    def __init__(self, width: int, filters: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(width, filters // 2, 1, bias=False)
        self.odd = nn.Conv2d(width, filters - filters // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(filters, NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(x)
        shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = self.even(x[:, :, ::2, ::2]), self.odd(shifted[:, :, ::2, ::2])
        return self.norm(torch.cat(halves, dim=1))  # type: ignore[no-any-return]


class Separable(nn.Sequential):
    """Twice a ReLU, a convolution of each channel, one across channels, and a batch norm; only the first strides."""

    def __init__(self, filters: int, kernel: int, *, stride: int = 1) -> None:
        modules: list[nn.Module] = []
        for step in (stride, 1):
            modules += [
                nn.ReLU(),
                nn.Conv2d(filters, filters, kernel, step, padding=kernel // 2, groups=filters, bias=False),
                nn.Conv2d(filters, filters, 1, bias=False),
                nn.BatchNorm2d(filters, NORM_EPS),
            ]
        super().__init__(*modules)


def _projection(before: Output, last: Output, filters: int) -> nn.Module:
    """Brings the output before the last to the sides of the last one."""
    is_larger = before.num_halvings < last.num_halvings
    return (HalvingProjection if is_larger else Projection)(before.width, filters)


def _average(x: Tensor, *, stride: int = 1) -> Tensor:
    return functional.avg_pool2d(x, 3, stride, padding=1, count_include_pad=False)
