"""The models that `headway up` was asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from headway.checkpoint.model_directory import NO_GENERATION_CONFIG, read_checkpoint
from headway.cli.engine_choice import EngineChoice, engine_of, with_engine
from headway.cli.fetching import cached_directory, fetch_to
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.model_uri import ModelUri, is_model_uri
from headway.core.plan.serving import ModelDeployment
from headway.core.slo import Slo

_PROFILE = "profile:"
_GENERATION_CONFIGS = {"auto": "", "none": NO_GENERATION_CONFIG, "vllm": NO_GENERATION_CONFIG}
_PROFILED_MODEL = Path(__file__).parent / "profiled_model"


def read_models(
    arguments: Sequence[str],
    *,
    dtype: str | None,
    quantization: str | None = None,
    max_model_len: int | None,
    slo: Slo,
    is_emulated: bool = False,
    generation_config: str = "auto",
    engines: Mapping[str, EngineChoice] = MappingProxyType({}),
) -> tuple[ModelDeployment, ...]:
    """Reads the checkpoint of each `DIR` or `NAME=DIR`.

    Args:
        is_emulated: weights are not needed then, and `profile:MODEL` and `NAME=profile:MODEL` stand for a model that
            is known by its imported stage profiles alone.
        generation_config: 'auto' for the checkpoints' own, 'none' or 'vllm' to do without, or a directory.
        engines: what computes each model, by name; '' for those that are not named.

    Raises:
        HeadwayError: a checkpoint is missing, malformed or of a kind that Headway does not run; two models have one
            name; a model cannot take sequences of `max_model_len`.
    """
    models = tuple(
        _read_model(
            argument,
            dtype=dtype,
            quantization=quantization,
            max_model_len=max_model_len,
            slo=slo,
            is_emulated=is_emulated,
            generation_config=_GENERATION_CONFIGS.get(generation_config, generation_config),
            engines=engines,
        )
        for argument in arguments
    )
    names = [model.name for model in models]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(
            f"Two models are called {repeated[0]}.", hint="Name them: --model NAME=DIR.", field="--model"
        )
    return tuple(with_engine(model, engines) for model in models)


def _read_model(
    argument: str,
    *,
    dtype: str | None,
    quantization: str | None,
    max_model_len: int | None,
    slo: Slo,
    is_emulated: bool,
    generation_config: str,
    engines: Mapping[str, EngineChoice],
) -> ModelDeployment:
    name, directory, profile = _split_profile(argument) or (*_split(argument), "")
    if profile and not is_emulated:
        raise InvalidArgumentError(
            f"--model {argument} is known by its profile alone; no device computes it.",
            hint="Emulate devices: --emulate 4xV100-16.",
            field="--model",
        )
    if generation_config not in _GENERATION_CONFIGS.values():
        generation_config = str(Path(generation_config).expanduser().resolve())
    engine = engine_of(name, engines).kind
    spec = read_checkpoint(
        directory,
        dtype=dtype,
        quantization=quantization,
        has_weights=not is_emulated and engine is not EngineKind.VLLM_SERVER,
        generation_config=generation_config,
        engine=engine,
    ).spec
    if max_model_len is not None and max_model_len > spec.max_position:
        raise InvalidArgumentError(
            f"{name} takes sequences of {spec.max_position} tokens at most, not {max_model_len}.",
            hint=f"Give --max-model-len {spec.max_position} or less.",
            field="--max-model-len",
        )
    return ModelDeployment(
        name=name,
        directory=str(directory),
        spec=spec,
        max_model_len=max_model_len,
        slo=slo,
        profile=profile,
        generation_config=generation_config,
    )


def _split_profile(argument: str) -> tuple[str, Path, str] | None:
    """Splits `[NAME=]profile:MODEL` into name, directory and profile; None for anything else. The directory holds a
    small BERT's configuration and a byte tokenizer: what sequences and vectors of such models look like here."""
    name, found, profile = argument.rpartition(_PROFILE)
    if not found or (name and not name.endswith("=")):
        return None
    name = name.removesuffix("=") or profile
    if not profile.strip() or not name.strip():
        raise InvalidArgumentError(f"--model {argument} names no profile.", field="--model")
    return name, _PROFILED_MODEL, profile


def _split(argument: str) -> tuple[str, Path]:
    """Splits `NAME=DIR` into name and directory. A directory whose own name has a '=' is taken as it is. What is
    elsewhere is fetched."""
    name, equals, path = argument.partition("=")
    if is_model_uri(argument) or is_model_uri(path):
        uri = ModelUri.parse(argument if is_model_uri(argument) else path)
        directory = cached_directory(uri)
        fetch_to(uri, directory)
        return uri.name if is_model_uri(argument) else name, directory
    if not equals or Path(argument).is_dir():
        directory = Path(argument).expanduser().resolve()
        return directory.name, directory
    if not name.strip():
        raise InvalidArgumentError(f"--model {argument} has no name before the '='.", field="--model")
    return name, Path(path).expanduser().resolve()
