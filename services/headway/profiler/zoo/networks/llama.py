"""The zoo's Llama; see `headway.profiler.zoo.families.llama`."""

from headway.profiler.zoo.families.llama import LlamaConfig
from headway.profiler.zoo.networks.decoder import Decoder


class Llama(Decoder):
    """The decoder of a config: the same network as is made of a checkpoint."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config.spec, capacity_factor=config.experts.capacity_factor if config.experts else 1.0)
