"""Reading single fields of a Hugging Face `config.json`. Every fault names its field."""

from collections.abc import Mapping
from typing import Any

from headway.core.errors import InvalidArgumentError

Config = Mapping[str, Any]

# Hugging Face's name -> ours; the spellings on one right-hand side compute the same function.
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def activation(config: Config, field: str, default: str) -> str:
    """Our name of an activation function."""
    name = config.get(field) or default
    if name not in _ACTIVATIONS:
        raise unsupported(field, name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def positive(config: Config, field: str, *, default: int | None = None) -> int:
    """An integer above 0; without a default the field must be there."""
    value = config.get(field)
    if value is None:
        value = default
    if value is None:
        raise InvalidArgumentError(f"{field} is missing.", field=field)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InvalidArgumentError(f"{field} must be a positive integer, not {value!r}.", field=field)
    return value


def require(config: Config, field: str, *, value: bool) -> None:
    """Refuses the other value of a flag that may be absent."""
    if bool(config.get(field, value)) is not value:
        raise unsupported(field, config[field], (value,))


def unsupported(field: str, value: object, supported: object) -> InvalidArgumentError:
    names = ", ".join(str(name) for name in supported)  # type: ignore[attr-defined]
    return InvalidArgumentError(f"{field} {value!r} is not supported.", hint=f"Supported: {names}.", field=field)
