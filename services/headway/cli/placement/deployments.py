"""How to serve the models of a placement: as they are served now, or from the checkpoints that are named."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headway.cli.models import read_models
from headway.core.engine_limits import check_model
from headway.core.errors import InvalidArgumentError
from headway.core.placement_problem import PlacementProblem, ProblemModel
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.slo import Slo


def find_deployments(
    problem: PlacementProblem, names: Sequence[str], *, live: ServingPlan | None, arguments: Sequence[str] = ()
) -> tuple[ModelDeployment, ...]:
    """Finds how to serve each model that is named.

    Args:
        live: the plan in use; a model that it serves under the same name stays as it is.
        arguments: NAME=DIR or NAME=profile:MODEL each; they take precedence.

    Raises:
        InvalidArgumentError: a model has no checkpoint; an argument names none of the placement's.
        HeadwayError: a checkpoint cannot be read.
    """
    is_emulated = live is not None and live.is_emulated
    named = {model.name: model for model in _read(arguments, is_emulated=is_emulated)}
    if unknown := sorted(named.keys() - set(names)):
        raise InvalidArgumentError(
            f"--model {unknown[0]} is not in the placement.", hint=f"It has {', '.join(names)}.", field="--model"
        )
    asked = {model.name: model for model in problem.models}
    return tuple(
        _live(asked[name], live, named) or _with_engine(named.get(name), asked[name], is_emulated=is_emulated)
        for name in names
    )


def _live(
    model: ProblemModel, live: ServingPlan | None, named: Mapping[str, ModelDeployment]
) -> ModelDeployment | None:
    """The deployment that is served under the model's name, unless its checkpoint is named, or it has another profile
    or engine."""
    found = live.model(model.name) if live is not None and model.name not in named else None
    if found is None or (found.profile and found.profile != model.architecture):
        return None
    is_same = (found.engine, found.engine_args) == (model.engine, model.engine_args) or not model.generates
    if is_same:
        return found
    adapters = found.adapters if found.engine is model.engine else ()
    return replace(found, engine=model.engine, engine_args=model.engine_args, adapters=adapters)


def _with_engine(named: ModelDeployment | None, model: ProblemModel, *, is_emulated: bool) -> ModelDeployment:
    """The checkpoint that is named, or the placement's, with the placement's engine."""
    found = named or _of_problem(model, is_emulated=is_emulated)
    check_model(model.name, found.spec, model.engine)
    return replace(found, engine=model.engine, engine_args=model.engine_args)


def _of_problem(model: ProblemModel, *, is_emulated: bool) -> ModelDeployment:
    if model.checkpoint:
        return _read([f"{model.name}={model.checkpoint}"], is_emulated=is_emulated)[0]
    if is_emulated:
        return _read([f"{model.name}=profile:{model.architecture}"], is_emulated=True)[0]
    raise InvalidArgumentError(
        f"The model '{model.name}' has no checkpoint directory: the placement knows '{model.architecture}' by its "
        "profile alone.",
        hint=f"Name it: --model {model.name}=DIR.",
        field="--model",
    )


def _read(arguments: Sequence[str], *, is_emulated: bool) -> tuple[ModelDeployment, ...]:
    return read_models(arguments, dtype=None, max_model_len=None, slo=Slo(), is_emulated=is_emulated)
