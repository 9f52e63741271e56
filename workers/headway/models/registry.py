"""Maps model families to classes; a family's module is imported when a model of it is built."""

from importlib import import_module
from typing import Any

import torch

from headway.core.model import ModelFamily, ModelSpec
from headway.models.encoder import Encoder
from headway.models.layout import Layout
from headway.models.model import Model

_CLASSES = {ModelFamily.LLAMA: "llama:Llama", ModelFamily.OPT: "opt:Opt", ModelFamily.GPT2: "gpt2:Gpt2"}
_ENCODERS = dict.fromkeys((ModelFamily.BERT, ModelFamily.ROBERTA, ModelFamily.DISTILBERT), "bert:Bert")


def build_model(spec: ModelSpec, *, layout: Layout, device: torch.device) -> Model:
    """A rank's part of a decoder, with uninitialised weights."""
    model: Model = _import(_CLASSES[spec.family])(spec, layout=layout, device=device)
    return model


def build_encoder(spec: ModelSpec, *, layout: Layout, device: torch.device) -> Encoder:
    """A rank's part of an encoder, with uninitialised weights."""
    encoder: Encoder = _import(_ENCODERS[spec.family])(spec, layout=layout, device=device)
    return encoder


def _import(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(f"headway.models.{module}"), name)
