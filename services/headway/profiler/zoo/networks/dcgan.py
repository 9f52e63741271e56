"""The networks of the family `headway.profiler.zoo.families.dcgan`."""

from itertools import pairwise

from torch import Tensor, nn

from headway.profiler.zoo.families.dcgan import DcganConfig

FIRST_SIZE = 4


class Dcgan(nn.Module):
    def __init__(self, config: DcganConfig) -> None:
        super().__init__()
        self.channels = config.channels[0]
        self.project = nn.Linear(config.latent, self.channels * FIRST_SIZE**2, bias=False)
        modules: list[nn.Module] = [nn.BatchNorm2d(self.channels), nn.ReLU()]
        for before, after in pairwise(config.channels):
            modules += [_doubling(before, after, config.kernel), nn.BatchNorm2d(after), nn.ReLU()]
        modules += [_doubling(config.channels[-1], 3, config.kernel), nn.Tanh()]
        self.generate = nn.Sequential(*modules)

    def forward(self, latent: Tensor) -> Tensor:
        """Random vectors [batch, latent] to images [batch, 3, size, size] in -1 to 1."""
        x = self.project(latent).unflatten(1, (self.channels, FIRST_SIZE, FIRST_SIZE))
        return self.generate(x)  # type: ignore[no-any-return]


def _doubling(width_in: int, width_out: int, kernel: int) -> nn.ConvTranspose2d:
    """A transposed convolution after which sides are twice as long."""
    return nn.ConvTranspose2d(width_in, width_out, kernel, 2, padding=kernel // 2, output_padding=1, bias=False)
