"""Checks that a model has the task that is asked of it. Each function returns the model that it is given, or says what
to ask instead.

Raises:
    InvalidArgumentError: the model has another task.
"""

from headway.core.errors import InvalidArgumentError
from headway.core.model import Task
from headway.gateway.model import ServedModel

_ENDPOINTS = {
    Task.GENERATE: "/v1/completions, /v1/chat/completions or /v1/responses",
    Task.EMBED: "/v1/embeddings",
    Task.CLASSIFY: "/v1/classify",
}


def generating(model: ServedModel) -> ServedModel:
    return _require(model, Task.GENERATE, "generate text")


def embedding(model: ServedModel) -> ServedModel:
    return _require(model, Task.EMBED, "give embeddings")


def classifying(model: ServedModel) -> ServedModel:
    return _require(model, Task.CLASSIFY, "classify")


def scoring(model: ServedModel) -> ServedModel:
    """One that judges pairs, a classifier with one label, or whose embeddings are compared."""
    encoder = model.spec.encoder
    if model.spec.task is not Task.EMBED and (encoder is None or not encoder.can_rerank):
        raise _mismatch(model, "score texts in pairs")
    return model


def inferring(model: ServedModel) -> ServedModel:
    """Whatever does not generate."""
    if model.spec.encoder is None:
        raise _mismatch(model, "give embeddings or classes")
    return model


def _require(model: ServedModel, task: Task, what: str) -> ServedModel:
    if model.spec.task is not task:
        raise _mismatch(model, what)
    return model


def _mismatch(model: ServedModel, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The model '{model.name}' ({model.spec.architecture}) does not {what}.",
        hint=f"Ask it at {_ENDPOINTS[model.spec.task]}, or ask another model.",
        field="model",
    )
