"""Forms in which fields may come besides the one that they are read as. Validators take them; the API's documentation
describes them by these.
"""

from typing import Literal, TypeAlias

from headway.gateway.openai.strict import Strict

Prompts: TypeAlias = str | list[int] | list[str | list[int]]
ChoiceWord: TypeAlias = Literal["none", "auto", "required"]


class TextPart(Strict):
    """A part of a chat message's content."""

    type: Literal["text"]
    text: str


class ItemTextPart(Strict):
    """A part of an item's content."""

    type: Literal["text", "input_text", "output_text", "reasoning_text"]
    text: str


class RefusalPart(Strict):
    """A part of a message's or an item's content, where the model refused."""

    type: Literal["refusal"]
    refusal: str


Content: TypeAlias = str | list[TextPart | RefusalPart] | None


class PassageObject(Strict):
    """A text to rank."""

    text: str
