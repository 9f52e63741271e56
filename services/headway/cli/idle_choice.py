"""Which of the models that `headway up` was asked for are unloaded while nobody asks for them: --unload-idle."""

from collections.abc import Sequence
from dataclasses import replace

import typer

from headway.cli.duration import parse_duration
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import ModelDeployment

_FIELD = "--unload-idle"


def with_idle(models: Sequence[ModelDeployment], texts: Sequence[str]) -> tuple[ModelDeployment, ...]:
    """The models with how long they stay loaded, of `DURATION` for all and `NAME=DURATION`; InvalidArgumentError where
    a model is unknown or cannot be unloaded, or a duration is none."""
    names = {model.name for model in models}
    idle_s: dict[str, float] = {}
    for text in texts:
        name, equals, duration = text.rpartition("=")
        if equals and name not in names:
            raise InvalidArgumentError(
                f"{_FIELD} {text} names no model; there are {', '.join(sorted(names))}.", field=_FIELD
            )
        try:
            idle_s[name] = parse_duration(duration)
        except typer.BadParameter as error:
            raise InvalidArgumentError(f"{_FIELD} {text}: {error}", field=_FIELD) from None
    return tuple(_with_idle(model, idle_s.get(model.name, idle_s.get(""))) for model in models)


def _with_idle(model: ModelDeployment, idle_s: float | None) -> ModelDeployment:
    if idle_s is None:
        return model
    if model.engine is EngineKind.VLLM_SERVER:
        raise InvalidArgumentError(
            f"{model.name} is loaded in a server that Headway did not start, and stays there.",
            hint=f"Give {_FIELD} NAME=DURATION of the other models.",
            field=_FIELD,
        )
    return replace(model, min_replicas=0, idle_s=idle_s)
