"""The sampling defaults of a model: what its `generation_config.json` recommends for requests that set none."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.core.errors import InvalidArgumentError

_RANGES = {"temperature": (0.0, 2.0), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """The sampling defaults of one model; without a `generation_config.json` those of the OpenAI API.

    Attributes:
        max_tokens: output tokens of a chat request that sets no limit; None for all that fit.
        max_tokens_limit: the most output tokens of any request; None for no such limit.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    max_tokens_limit: int | None = None

    @property
    def of_beam_search(self) -> "SamplingDefaults":
        """Returns the defaults for a beam search, where nothing is drawn."""
        return replace(self, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0)


def sampling_defaults_from_config(config: Mapping[str, Any], *, is_limit: bool = False) -> SamplingDefaults:
    """The fields that vLLM takes, too: the others, `do_sample` among them, are for transformers.

    Args:
        config: the file's content; null is as good as absent.
        is_limit: whether `max_new_tokens` bounds requests that set a limit of their own, too.

    Raises:
        InvalidArgumentError: naming the field that is of the wrong type or out of range.
    """
    fields: dict[str, Any] = {name: _number(config, name, *bounds) for name, bounds in _RANGES.items()}
    if fields["top_p"] == 0:
        raise _fault("top_p", 0, "a number above 0 and up to 1")
    fields["repetition_penalty"] = _number(config, "repetition_penalty", 0.0, math.inf)
    if fields["repetition_penalty"] == 0:
        raise _fault("repetition_penalty", 0, "a number above 0")
    fields["top_k"] = _integer(config, "top_k", -1)
    fields["max_tokens"] = _integer(config, "max_new_tokens", 1)
    fields["max_tokens_limit"] = fields["max_tokens"] if is_limit else None
    return SamplingDefaults(**{name: value for name, value in fields.items() if value is not None})


def _number(config: Mapping[str, Any], field: str, low: float, high: float) -> float | None:
    value = config.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value == math.inf:
        raise _fault(field, value, f"a number of at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]")
    return float(value)


def _integer(config: Mapping[str, Any], field: str, low: int) -> int | None:
    value = config.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _fault(field, value, f"an integer of at least {low}")
    return value


def _fault(field: str, value: object, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field} must be {expected}, not {value!r:.100}.",
        hint="Correct it, or do without the file: --generation-config none.",
        field=field,
    )
