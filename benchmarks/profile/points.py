"""The (model, batch, sequence) points that are predicted and then measured. Nothing was fitted to them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.profiler.zoo.families.bert import BertConfig
from headway.profiler.zoo.families.candle_uno import CandleUnoConfig
from headway.profiler.zoo.families.gpt import GptConfig
from headway.profiler.zoo.families.gshard import GShardConfig
from headway.profiler.zoo.families.llama import LlamaConfig
from headway.profiler.zoo.families.mt5 import Mt5Config
from headway.profiler.zoo.families.multimodal import MultiModalConfig
from headway.profiler.zoo.families.resnet import ResNetConfig
from headway.profiler.zoo.model import Architecture, ZooModel
from headway.profiler.zoo.network import make_network

SEED = 42
_BATCHES = (1, 2, 3, 4, 6, 8)
_SEQS = (24, 48, 96, 160, 256, 384, 500)
_PER_MODEL = 3

ARCHITECTURES: dict[str, Architecture] = {
    "gpt, 4 x 256": GptConfig(num_layers=4, hidden=256, num_heads=4, vocabulary=8192, seq=512),
    "gpt, 6 x 640": GptConfig(num_layers=6, hidden=640, num_heads=10, vocabulary=16_384, seq=512),
    "bert, 6 x 384": BertConfig(hidden=384, num_layers=6, num_heads=6, vocabulary=30_522, seq=512),
    "bert, 4 x 768": BertConfig(hidden=768, num_layers=4, num_heads=12, vocabulary=30_522, seq=512),
    "llama, 4 x 512": LlamaConfig(
        num_layers=4, hidden=512, num_heads=8, num_kv_heads=4, inner=1408, vocabulary=16_000, seq=512, head_dim=64
    ),
    "moe, 4 x 256": GShardConfig(
        hidden=256, num_layers=4, num_heads=4, num_experts=8, vocabulary=8192, seq=512, inner_factor=4
    ),
    "mt5, 6 x 384": Mt5Config(num_layers=6, hidden=384, num_heads=6, vocabulary=8192, seq=512),
    "two branches": MultiModalConfig(num_branches=2, num_layers=3, hidden=512, inner=2048, num_heads=8, seq=512),
    "candle-uno, 1536": CandleUnoConfig(num_branches=4, hidden=1536),
    "resnet, 128 pixels": ResNetConfig(blocks=(2, 2, 2, 2), base_channels=64, num_classes=1000, image_size=128),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPoint:
    """A model with a batch size and a length; `seq` is None where the model has no sequences."""

    model: str
    batch: int
    seq: int | None

    def make(self, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Makes the module, in evaluation mode, and inputs for it."""
        zoo_model = ZooModel(
            name=self.model,
            family="benchmark",
            source="this benchmark",
            config=ARCHITECTURES[self.model],
            is_trained_in_paper=False,
        )
        torch.manual_seed(SEED)
        return make_network(zoo_model, device), zoo_model.example_inputs(batch=self.batch, seq=self.seq, device=device)

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch}" + ("" if self.seq is None else f", {self.seq} tokens")


def draw_points(seed: int = SEED) -> Iterator[ModelPoint]:
    """Draws three points of each model, without replacement."""
    generator = random.Random(seed)
    for model, config in ARCHITECTURES.items():
        seqs: tuple[int | None, ...] = _SEQS if config.seq is not None else (None,)
        choices = [(batch, seq) for batch in _BATCHES for seq in seqs]
        for batch, seq in sorted(generator.sample(choices, _PER_MODEL), key=lambda pair: pair[0] * (pair[1] or 1)):
            yield ModelPoint(model=model, batch=batch, seq=seq)
