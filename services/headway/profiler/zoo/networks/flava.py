"""The networks of the family `headway.profiler.zoo.families.flava`."""

import torch
from torch import Tensor, nn

from headway.profiler.zoo.families.flava import FlavaConfig
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.feed_forward import Mlp
from headway.profiler.zoo.networks.transformer import Embedding, Layer, layer_norms


class Flava(nn.Module):
    def __init__(self, config: FlavaConfig) -> None:
        super().__init__()
        self.text_embedding = Embedding(config.vocabulary, config.hidden, seq=config.seq)
        self.text_encoder = Encoder(config, num_layers=config.num_text_layers)
        self.patches = PatchEmbedding(config)
        self.vision_encoder = Encoder(config, num_layers=config.num_vision_layers)
        self.text_projection = nn.Linear(config.hidden, config.hidden)
        self.vision_projection = nn.Linear(config.hidden, config.hidden)
        self.cross_encoder = Encoder(config, num_layers=config.num_cross_layers)

    def forward(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Ids [batch, seq] and images [batch, 3, size, size] to hidden states [batch, patches + 1 + seq, hidden]."""
        text = self.text_projection(self.text_encoder(self.text_embedding(tokens)))
        vision = self.vision_projection(self.vision_encoder(self.patches(images)))
        return self.cross_encoder(torch.cat((vision, text), dim=1))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Bidirectional transformer layers and a last norm."""

    def __init__(self, config: FlavaConfig, *, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(
                Attention(config.hidden, config.num_heads),
                Mlp(config.hidden, 4 * config.hidden),
                norms=layer_norms(config.hidden),
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]


class PatchEmbedding(nn.Module):
    """A vector for each square patch of an image, after a learned one for the image as a whole."""

    def __init__(self, config: FlavaConfig) -> None:
        super().__init__()
        num_patches = (config.image_size // config.patch_size) ** 2
        self.project = nn.Conv2d(3, config.hidden, config.patch_size, stride=config.patch_size)
        self.whole = nn.Parameter(torch.zeros(1, 1, config.hidden))
        self.positions = nn.Parameter(torch.zeros(1, num_patches + 1, config.hidden))

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, size, size] to [batch, patches + 1, hidden]."""
        patches = self.project(images).flatten(2).transpose(1, 2)
        whole = self.whole.expand(images.shape[0], -1, -1)
        return torch.cat((whole, patches), dim=1) + self.positions
