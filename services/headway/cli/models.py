"""The models that `headway up` was asked for."""

from collections.abc import Sequence
from pathlib import Path

from headway.core.errors import InvalidArgumentError
from headway.core.plan import ModelDeployment
from headway.core.slo import Slo
from headway.store.checkpoint import read_checkpoint


def read_models(
    arguments: Sequence[str], *, dtype: str | None, quantization: str | None = None, max_model_len: int | None, slo: Slo
) -> tuple[ModelDeployment, ...]:
    """Reads the checkpoint of each `DIR` or `NAME=DIR`.

    Raises:
        HeadwayError: a checkpoint is missing, malformed or of a kind that Headway does not run; two models have one
            name; a model cannot take sequences of `max_model_len`.
    """
    models = tuple(
        _read_model(argument, dtype=dtype, quantization=quantization, max_model_len=max_model_len, slo=slo)
        for argument in arguments
    )
    names = [model.name for model in models]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(
            f"Two models are called {repeated[0]}.", hint="Name them: --model NAME=DIR.", field="--model"
        )
    return models


def _read_model(
    argument: str, *, dtype: str | None, quantization: str | None = None, max_model_len: int | None, slo: Slo
) -> ModelDeployment:
    name, directory = _split(argument)
    spec = read_checkpoint(directory, dtype=dtype, quantization=quantization).spec
    if max_model_len is not None and max_model_len > spec.max_position:
        raise InvalidArgumentError(
            f"{name} takes sequences of {spec.max_position} tokens at most, not {max_model_len}.",
            hint=f"Give --max-model-len {spec.max_position} or less.",
            field="--max-model-len",
        )
    return ModelDeployment(name=name, directory=str(directory), spec=spec, max_model_len=max_model_len, slo=slo)


def _split(argument: str) -> tuple[str, Path]:
    """A directory whose own name has a '=' is taken as it is."""
    name, equals, path = argument.partition("=")
    if not equals or Path(argument).is_dir():
        directory = Path(argument).expanduser().resolve()
        return directory.name, directory
    if not name.strip():
        raise InvalidArgumentError(f"--model {argument} has no name before the '='.", field="--model")
    return name, Path(path).expanduser().resolve()
