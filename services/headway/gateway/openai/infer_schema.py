"""Bodies of the requests to models that do not generate."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferInput, TextInput
from headway.gateway.infer.score import TextPairs
from headway.gateway.openai.input_form import PassageObject, Prompts
from headway.gateway.openai.strict import ModelRequest


def _as_inputs(value: Any) -> Any:
    """A text, token ids, or a list of texts or of lists of token ids: always a list of inputs."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("input", "should be a text, token ids, or a list of one of these that is not empty")
    if all(type(item) is int for item in value):
        return [value]
    for i, item in enumerate(value):
        is_tokens = isinstance(item, list) and all(type(token_id) is int for token_id in item)
        if not isinstance(item, str) and not is_tokens:
            raise PydanticCustomError(
                "input", "has an item {index} that is neither text nor a list of token ids", {"index": i}
            )
    return value


def _as_passage(value: Any) -> Any:
    """A text by itself, or as the field of an object, which may have others."""
    return value["text"] if isinstance(value, dict) and "text" in value else value


Passage = Annotated[str, BeforeValidator(_as_passage, json_schema_input_type=str | PassageObject)]


class InputRequest(ModelRequest):
    """The fields that embeddings and classification requests share."""

    input: Annotated[list[str | list[int]], BeforeValidator(_as_inputs, json_schema_input_type=Prompts)]
    truncate_prompt_tokens: int | None = None

    @property
    def inputs(self) -> list[InferInput]:
        """InvalidArgumentError for a text of no length, as OpenAI has it."""
        for i, item in enumerate(self.input):
            if not item:
                raise InvalidArgumentError("The input is empty.", hint="Leave it out.", field=f"input[{i}]")
        return [TextInput(item) if isinstance(item, str) else tuple(item) for item in self.input]


class EmbeddingRequest(InputRequest):
    """Body of POST /v1/embeddings."""

    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


class ClassifyRequest(InputRequest):
    """The body of POST /v1/classify."""


class RerankRequest(ModelRequest):
    """The body of POST /v1/rerank."""

    query: Passage
    documents: Annotated[list[Passage], Field(min_length=1)]
    top_n: int | None = None
    return_documents: bool = True
    truncate_prompt_tokens: int | None = None

    @property
    def pairs(self) -> TextPairs:
        return TextPairs(firsts=[self.query], seconds=self.documents, first_field="query", second_field="documents")


def _as_passages(value: Any) -> Any:
    """A text, or a list of some: always a list."""
    passages = value if isinstance(value, list) else [value]
    if not passages:
        raise PydanticCustomError("passages", "should be a text, or a list of some that is not empty")
    return passages


Passages = Annotated[
    list[Passage],
    BeforeValidator(_as_passages, json_schema_input_type=str | PassageObject | list[str | PassageObject]),
]


class ScoreRequest(ModelRequest):
    """The body of POST /v1/score: each of the first texts with its counterpart, or one with all."""

    text_1: Passages
    text_2: Passages
    truncate_prompt_tokens: int | None = None

    @property
    def pairs(self) -> TextPairs:
        """InvalidArgumentError where there are not as many of both."""
        return TextPairs(firsts=self.text_1, seconds=self.text_2, first_field="text_1", second_field="text_2")
