"""Request fields that constrain the output, in the OpenAI API's form and in vLLM's."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from headway.core.errors import InvalidArgumentError
from headway.core.request import Guide, GuideKind
from headway.gateway.constraint import Constraints
from headway.gateway.openai.strict import Strict

_MAX_ID_DIGITS = 9


def _as_text(value: Any) -> Any:
    """A JSON schema may come as a document or as its text."""
    return json.dumps(value) if isinstance(value, dict) else value


SchemaText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | dict[str, Any])]
Choices = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


class GuidingPart(Protocol):
    """A part of a request that may ask for a guide."""

    @property
    def guides(self) -> dict[str, Guide]:
        """Returns the guides that it asks for, by the name of their field."""


class JsonSchemaFormat(Strict):
    """A schema with its name; it is followed to the letter whether `strict` or not."""

    name: str | None = None
    description: str | None = None
    schema_: SchemaText | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """The field `response_format`: the OpenAI API's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @property
    def guides(self) -> dict[str, Guide]:
        """Returns the guide that this field asks for, by the field's name; at most one."""
        if self.type == "text":
            return {}
        if self.type == "json_object":
            return {"response_format": Guide(GuideKind.JSON_OBJECT)}
        if self.json_schema is None or self.json_schema.schema_ is None:
            raise InvalidArgumentError(
                "response_format asks for a JSON schema and has none.",
                hint='Set response_format.json_schema to {"name": "...", "schema": {...}}.',
                field="response_format.json_schema",
            )
        return {"response_format.json_schema.schema": Guide(GuideKind.JSON_SCHEMA, self.json_schema.schema_)}


class StructuredOutputs(Strict):
    """The field `structured_outputs`: vLLM's way to guide an output."""

    json_: SchemaText | None = Field(default=None, alias="json")
    json_object: bool = False
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None

    @property
    def guides(self) -> dict[str, Guide]:
        """Returns the guides that are set, by the name of their field."""
        guides = _guides(json_schema=self.json_, regex=self.regex, choice=self.choice, grammar=self.grammar)
        if self.json_object:
            guides["json_object"] = Guide(GuideKind.JSON_OBJECT)
        if not guides:  # what asks for a constraint that is not known here must not go without any
            raise InvalidArgumentError(
                "structured_outputs asks for none of json, json_object, regex, choice and grammar.",
                hint="Set one of them.",
                field="structured_outputs",
            )
        return {f"structured_outputs.{name}": guide for name, guide in guides.items()}


class ConstrainedRequest(Strict):
    """The part of a request that constrains its output; guided_* are older names of structured_outputs."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    logit_bias: dict[str, float] = Field(default_factory=dict)
    bad_words: list[str] = Field(default_factory=list)

    @property
    def constraints(self) -> Constraints:
        field, guide = next(iter(self._guides.items()), ("", None))
        return Constraints(
            logit_bias=tuple((_token_id(key), bias) for key, bias in self.logit_bias.items()),
            bad_words=tuple(self.bad_words),
            guide=guide,
            guide_field=field,
        )

    @property
    def _guiding_parts(self) -> Sequence[GuidingPart | None]:
        return (self.response_format, self.structured_outputs)

    @property
    def _guides(self) -> dict[str, Guide]:
        older = _guides(
            json_schema=self.guided_json,
            regex=self.guided_regex,
            choice=self.guided_choice,
            grammar=self.guided_grammar,
        )
        guides = {f"guided_{name}": guide for name, guide in older.items()}
        for part in self._guiding_parts:
            guides |= {} if part is None else part.guides
        if len(guides) > 1:
            first, second, *_ = guides
            raise InvalidArgumentError(
                f"{first} and {second} exclude each other.", hint="Leave one of them out.", field=second
            )
        return guides


def _guides(
    *, json_schema: str | None, regex: str | None, choice: list[str] | None, grammar: str | None
) -> dict[str, Guide]:
    texts = {
        "json": (GuideKind.JSON_SCHEMA, json_schema),
        "regex": (GuideKind.REGEX, regex),
        "choice": (GuideKind.CHOICE, None if choice is None else json.dumps(choice)),
        "grammar": (GuideKind.GRAMMAR, grammar),
    }
    return {name: Guide(kind, text) for name, (kind, text) in texts.items() if text is not None}


def _token_id(key: str) -> int:
    if not key.isdecimal() or len(key) > _MAX_ID_DIGITS:
        raise InvalidArgumentError(
            f"logit_bias has the key '{key[:100]}'.",
            hint='Keys are token ids, as in {"50256": -100}.',
            field="logit_bias",
        )
    return int(key)
