"""Request fields that are not read: taken where they change nothing, refused by name where they would."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from headway.core.errors import InvalidArgumentError

# They concern the account, the transport or features that are off: the answer is the same without them.
_WITHOUT_EFFECT = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)


# Not supported, and the values with which they ask for nothing, as null does everywhere.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "audio": (),
    "continue_final_message": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def read_fields(body: Mapping[str, Any], *, known: Collection[str]) -> dict[str, Any]:
    """The fields that are read; null is left out, since it means the default.

    Args:
        known: names that the request may have.

    Raises:
        InvalidArgumentError: a field is unknown, or asks for what is not supported.
    """
    fields: dict[str, Any] = {}
    for name, value in body.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        if name in known:
            fields[name] = value
        elif name not in _NEUTRAL:
            raise _unknown(name, known)
        elif not _is_neutral(name, value):
            raise InvalidArgumentError(f"{name} is not supported.", hint="Leave it out.", field=name)
    return fields


def _is_neutral(name: str, value: Any) -> bool:
    return any(value == neutral and type(value) is type(neutral) for neutral in _NEUTRAL[name])


def _unknown(name: str, known: Collection[str]) -> InvalidArgumentError:
    near = difflib.get_close_matches(name, [*known, *_NEUTRAL, *_WITHOUT_EFFECT], n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known fields: {', '.join(sorted(known))}."
    return InvalidArgumentError(f"Unknown field '{name[:100]}'.", hint=hint, field=name[:100])
