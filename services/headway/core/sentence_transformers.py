"""Reads the pooling that a sentence-transformers directory states in the list of its modules, as parsed documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headway.core.encoder import EncoderSpec, Pooling
from headway.core.errors import InvalidArgumentError

_POOLING_BY_FLAG = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
}


@dataclass(frozen=True, slots=True)
class Module:
    """One step of `modules.json`: the last part of its type's name, and its own `config.json`."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)


def apply_modules(encoder: EncoderSpec, modules: Sequence[Module]) -> EncoderSpec:
    """The encoder with the pooling and the normalisation that the modules ask for.

    Raises:
        InvalidArgumentError: a module, or a way of pooling, that Headway does not know.
    """
    for module in modules:
        match module.kind:
            case "Transformer":
                pass
            case "Pooling":
                encoder = replace(encoder, pooling=_pooling(module.config))
            case "Normalize":
                encoder = replace(encoder, normalizes=True)
            case _:
                raise InvalidArgumentError(
                    f"The module {module.kind} is not supported.",
                    hint="Supported: Transformer, Pooling, Normalize.",
                    field="modules",
                )
    return encoder


def _pooling(config: Mapping[str, Any]) -> Pooling:
    if (named := config.get("pooling_mode")) in set(Pooling):
        return Pooling(named)
    wanted = [flag for flag, value in config.items() if flag.startswith("pooling_mode_") and value is True]
    if len(wanted) != 1 or wanted[0] not in _POOLING_BY_FLAG:
        asked = ", ".join(wanted) or str(named or "nothing")
        raise InvalidArgumentError(
            f"Pooling by {asked} is not supported.",
            hint=f"Supported, one at a time: {', '.join(_POOLING_BY_FLAG)}.",
            field="pooling_mode",
        )
    return _POOLING_BY_FLAG[wanted[0]]
