"""What runs the layers of the encoders that `headway up` was asked for: --backend, and what it rules out."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.served_backend import FASTEST, check_installed, check_served_backend, obstacle, own_backend

_FIELD = "--backend"


def with_backends(
    models: Sequence[ModelDeployment], backends: Sequence[str], *, is_emulated: bool
) -> tuple[ModelDeployment, ...]:
    """The models with what runs them, of `BACKEND` for every encoder and `NAME=BACKEND`.

    Raises:
        InvalidArgumentError: a backend is unknown, or there is no encoder for it.
        FailedPreconditionError: it is not installed.
    """
    chosen = dict(_split(each) for each in backends)
    names = {model.name for model in models if model.spec.encoder is not None and model.engine is EngineKind.HEADWAY}
    for name, backend in chosen.items():
        check_served_backend(backend, field=_FIELD)
        if is_emulated:
            raise InvalidArgumentError(
                "--backend: emulated devices compute nothing.", hint="Leave it out.", field=_FIELD
            )
        if not names or (name and name not in names):
            encoders = f"There are {', '.join(sorted(names))}." if names else "No model here is one."
            raise InvalidArgumentError(
                f"--backend {f'{name}=' if name else ''}{backend} names no encoder.", hint=encoders, field=_FIELD
            )
        check_installed(backend, field=_FIELD)
    return tuple(
        replace(model, backend=own_backend(chosen.get(model.name, chosen.get("", ""))))
        if model.name in names
        else model
        for model in models
    )


def check_backends(models: Sequence[ModelDeployment], limits: EngineLimits, *, device: str) -> None:
    """InvalidArgumentError where a model cannot run on the library that it is to run on. With `FASTEST` it runs on
    Headway's own kernels then."""
    for model in models:
        reason = obstacle(model.spec, num_ranks=limits.parallel.num_ranks, device=device)
        if model.backend not in ("", FASTEST) and reason:
            raise InvalidArgumentError(
                f"{model.name} cannot run on {model.backend}: {reason}.", hint="Leave --backend out.", field=_FIELD
            )


def _split(text: str) -> tuple[str, str]:
    name, equals, backend = text.rpartition("=")
    if equals and not name.strip():
        raise InvalidArgumentError(f"--backend {text} has no name before the '='.", field=_FIELD)
    return name, backend
