"""Finds the zoo's models by name."""

from difflib import get_close_matches

from headway.core.capture import ZOO_PREFIX
from headway.core.errors import InvalidArgumentError
from headway.profiler.zoo.families import (
    bert,
    candle_uno,
    dcgan,
    dlrm,
    flava,
    gpt,
    gshard,
    llama,
    mt5,
    multimodal,
    nasnet,
    resnet,
)
from headway.profiler.zoo.model import SMALL_SUFFIX, ZooModel

FAMILIES = (gpt, gshard, bert, llama, mt5, flava, multimodal, dlrm, candle_uno, resnet, nasnet, dcgan)


def models() -> tuple[ZooModel, ...]:
    """All models in full size, family by family."""
    return tuple(model for family in FAMILIES for model in family.MODELS)


def names() -> tuple[str, ...]:
    """The names of all models in full size; each also exists as NAME-small."""
    return tuple(model.name for model in models())


def find(name: str) -> ZooModel:
    """The model of this name, or with the suffix "-small" its small variant.

    Raises:
        InvalidArgumentError: there is none; it names those that are spelt alike.
    """
    by_name = {model.name: model for model in models()}
    full_name = name.removesuffix(SMALL_SUFFIX)
    if full_name in by_name:
        model = by_name[full_name]
        return model if name == full_name else model.small()
    nearest = get_close_matches(full_name.lower(), by_name, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else f"There are {', '.join(by_name)}."
    raise InvalidArgumentError(f"The zoo has no model '{name}'.", hint=hint, field="model")


def find_source(source: str) -> ZooModel | None:
    """The model of a source `zoo:NAME`; None for another source.

    Raises:
        InvalidArgumentError: the zoo has none of this name.
    """
    return find(source.removeprefix(ZOO_PREFIX)) if source.startswith(ZOO_PREFIX) else None
