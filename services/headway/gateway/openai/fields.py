"""Request fields that are not read: those that change nothing, those that would, and those that nobody knows."""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from headway.core.errors import InvalidArgumentError
from headway.gateway.openai.ignored import IgnoredFields

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


# Not supported, and the values with which they ask for nothing, as null does everywhere. With others the answer would
# not be the one that the client asked for.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def read_fields(body: Mapping[str, Any], *, known: Collection[str], ignored: IgnoredFields) -> dict[str, Any]:
    """The fields that are read; null is left out, since it means the default.

    Args:
        known: names that the request may have.
        ignored: gets those that nobody knows.

    Raises:
        InvalidArgumentError: a field asks for what is not supported, or is unknown to a strict reader.
    """
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if name not in known and value is not None and not _is_one_of(value, neutral):
            raise InvalidArgumentError(f"{name} is not supported.", hint="Leave it out.", field=name)
    for name, value in body.items():
        if value is None or name in known or name in _WITHOUT_EFFECT or name in _NEUTRAL:
            continue
        ignored.add(name, known=known)
        if ignored.is_full:
            break
    return {name: value for name in known if (value := body.get(name)) is not None}


def note_unread_parts(model: BaseModel, document: Mapping[str, Any], ignored: IgnoredFields) -> None:
    """Notes what parts of a document have that the model made of it has not."""
    for path in _unread_parts(model, document, ""):
        ignored.add(path)
        if ignored.is_full:
            break


def _unread_parts(model: BaseModel, document: Mapping[str, Any], path: str) -> Iterator[str]:
    attributes = _attributes(type(model))
    for name, part in document.items():
        where = f"{path}.{name}" if path else name
        if name not in attributes:
            yield where
            continue
        value = getattr(model, attributes[name])
        if isinstance(value, BaseModel) and isinstance(part, dict):
            yield from _unread_parts(value, part, where)
        elif isinstance(value, list) and isinstance(part, list) and value and isinstance(value[0], BaseModel):
            for i, (item, item_part) in enumerate(zip(value, part, strict=True)):
                yield from _unread_parts(item, item_part, f"{where}[{i}]")


@lru_cache(maxsize=64)
def _attributes(kind: type[BaseModel]) -> Mapping[str, str]:
    """Maps the names of a model's fields in a document to their attribute names."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    return any(value == other and type(value) is type(other) for other in neutral)
