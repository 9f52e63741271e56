"""The adapters that a plan serves beside its models. Pure."""

import shlex
from dataclasses import dataclass, replace

from headway.core.adapter import Adapter
from headway.core.engine_kind import FEATURES, Feature, lacks
from headway.core.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from headway.core.plan.serving import ModelDeployment, ServingPlan

_ENABLE = "--enable-lora"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAdapter:
    """An adapter and the model that it changes."""

    model: str
    adapter: Adapter


def adapters_of(plan: ServingPlan) -> list[ServedAdapter]:
    return [ServedAdapter(model=model.name, adapter=each) for model in plan.models for each in model.adapters]


def with_adapter(plan: ServingPlan, model: str, adapter: Adapter) -> ServingPlan:
    """The plan with one more adapter of a model.

    Raises:
        NotFoundError: it serves no such model.
        AlreadyExistsError: something is served under the adapter's name.
        FailedPreconditionError: the model's engine takes no adapters.
    """
    changed = plan.model(model)
    if changed is None:
        names = ", ".join(each.name for each in plan.models)
        raise NotFoundError(f"The model '{model}' is not served.", hint=f"There are {names}.", field="model")
    taken = {each.name for each in plan.models} | {each.adapter.name for each in adapters_of(plan)}
    if adapter.name in taken:
        raise AlreadyExistsError(
            f"'{adapter.name}' is served already.",
            hint="Name the adapter otherwise: NAME=DIR; or unload the one of that name first.",
            field="name",
        )
    if Feature.LORA not in FEATURES[changed.engine]:
        raise lacks(changed.engine, Feature.LORA, model=model)
    if _ENABLE not in shlex.split(changed.engine_args):
        raise FailedPreconditionError(
            f"The model '{model}' was started without room for adapters.",
            hint=f"Start it with --engine-args '{_ENABLE}', and --max-loras and --max-lora-rank as needed.",
            field="engine_args",
        )
    return _with_model(plan, replace(changed, adapters=(*changed.adapters, adapter)))


def without_adapter(plan: ServingPlan, name: str) -> ServingPlan:
    """The plan without an adapter; NotFoundError where it has none of that name."""
    for served in adapters_of(plan):
        if served.adapter.name == name:
            changed = plan.model(served.model)
            assert changed is not None, "an adapter is of a model of the plan"
            kept = tuple(each for each in changed.adapters if each.name != name)
            return _with_model(plan, replace(changed, adapters=kept))
    raise NotFoundError(f"There is no adapter '{name}'.", hint="`headway lora list` shows them.", field="name")


def keeping_adapters(model: ModelDeployment, plan: ServingPlan | None) -> ModelDeployment:
    """The model with the adapters that a plan serves beside it, as long as its engine takes them."""
    served = None if plan is None else plan.model(model.name)
    if served is None or Feature.LORA not in FEATURES[model.engine]:
        return model
    return replace(model, adapters=served.adapters)


def _with_model(plan: ServingPlan, changed: ModelDeployment) -> ServingPlan:
    models = tuple(changed if each.name == changed.name else each for each in plan.models)
    return replace(plan, models=models)
