"""The networks of the zoo's models: which one each family's configuration describes. Loads torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headway.profiler.zoo.families.bert import BertConfig
from headway.profiler.zoo.families.candle_uno import CandleUnoConfig
from headway.profiler.zoo.families.dcgan import DcganConfig
from headway.profiler.zoo.families.dlrm import DlrmConfig
from headway.profiler.zoo.families.flava import FlavaConfig
from headway.profiler.zoo.families.gpt import GptConfig
from headway.profiler.zoo.families.gshard import GShardConfig
from headway.profiler.zoo.families.llama import LlamaConfig
from headway.profiler.zoo.families.mt5 import Mt5Config
from headway.profiler.zoo.families.multimodal import MultiModalConfig
from headway.profiler.zoo.families.nasnet import NasNetConfig
from headway.profiler.zoo.families.resnet import ResNetConfig
from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.networks.bert import Bert
from headway.profiler.zoo.networks.candle_uno import CandleUno
from headway.profiler.zoo.networks.dcgan import Dcgan
from headway.profiler.zoo.networks.dlrm import Dlrm
from headway.profiler.zoo.networks.flava import Flava
from headway.profiler.zoo.networks.gpt import Gpt
from headway.profiler.zoo.networks.gshard import GShard
from headway.profiler.zoo.networks.llama import Llama
from headway.profiler.zoo.networks.mt5 import Mt5
from headway.profiler.zoo.networks.multimodal import MultiModal
from headway.profiler.zoo.networks.nasnet import NasNet
from headway.profiler.zoo.networks.resnet import ResNet

NETWORKS: dict[type[Any], Callable[[Any], nn.Module]] = {
    BertConfig: Bert,
    CandleUnoConfig: CandleUno,
    DcganConfig: Dcgan,
    DlrmConfig: Dlrm,
    FlavaConfig: Flava,
    GptConfig: Gpt,
    GShardConfig: GShard,
    LlamaConfig: Llama,
    Mt5Config: Mt5,
    MultiModalConfig: MultiModal,
    NasNetConfig: NasNet,
    ResNetConfig: ResNet,
}


def make_network(model: ZooModel, device: str | torch.device = "meta") -> nn.Module:
    """The model's module in float32, in training mode if the paper trains it. On "meta" it takes no memory."""
    with torch.device(device):
        return NETWORKS[type(model.config)](model.config).train(model.is_trained_in_paper)
