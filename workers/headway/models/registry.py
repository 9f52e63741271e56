"""Which class runs which family; a family's module is imported when a model of it is built."""

from importlib import import_module

import torch

from headway.core.model import Family, ModelSpec
from headway.models.model import Model

_CLASSES = {Family.LLAMA: "llama:Llama", Family.OPT: "opt:Opt", Family.GPT2: "gpt2:Gpt2"}


def build_model(spec: ModelSpec, *, device: torch.device) -> Model:
    """The network with uninitialised weights."""
    module, name = _CLASSES[spec.family].split(":")
    model: Model = getattr(import_module(f"headway.models.{module}"), name)(spec, device=device)
    return model
