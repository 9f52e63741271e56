"""Tokenises prompts, once per request."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.gateway.errors import ContextLengthError
from headway.gateway.job import Prompt
from headway.gateway.model import ServedModel
from headway.gateway.text.template import Message
from headway.gateway.threads import Threads

# About a millisecond's work; more of it goes to another thread.
MAX_INLINE_CHARS = 4096
_LIKELY_CHARS_PER_TOKEN = 16  # texts that fit have fewer
_PIECE_CHARS = 64 * 1024


class PromptTokenizer:
    """Tokenises short texts at once and long ones in threads.

    How many prompts there are is checked before they come here.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def prompts(
        self,
        model: ServedModel,
        inputs: Sequence[str | Sequence[int]],
        *,
        field: str,
        tenant: str = "",
        is_to_fit: bool = True,
    ) -> list[Prompt]:
        """Texts with the special tokens that the model's tokenizer puts around one, and token ids as they are.

        Args:
            field: the inputs' name in the client's request.
            is_to_fit: whether the model is to take them.

        Raises:
            InvalidArgumentError: one is empty, or holds an unknown token.
            ContextLengthError: one is far longer than the model takes.
        """

        def encode() -> list[Prompt]:
            for item in inputs if is_to_fit else ():
                if isinstance(item, str):
                    check_text_length(item, model=model, field=field)
            if len(inputs) == 1:
                return [_encode(model, inputs[0], field=field)]
            return [_encode(model, item, field=f"{field}[{i}]") for i, item in enumerate(inputs)]

        return await self._threads.run(encode, is_long=sum(map(len, inputs)) > MAX_INLINE_CHARS, tenant=tenant)

    async def chat(
        self,
        model: ServedModel,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        tenant: str = "",
        is_to_fit: bool = True,
    ) -> Prompt:
        """Messages by the model's template, which writes the special tokens itself; see `ChatTemplate.render`."""
        if not messages:
            raise InvalidArgumentError("There are no messages.", hint="Send at least one.", field="messages")
        template = model.template
        if template is None:
            raise InvalidArgumentError(
                f"The model '{model.name}' has no chat template.",
                hint="Use the completions API, or add a chat_template.jinja to the checkpoint.",
                field="messages",
            )

        def encode() -> Prompt:
            text = template.render(
                messages, tools=tools, options=options, continue_final_message=continue_final_message
            )
            if is_to_fit:
                check_text_length(text, model=model, field="messages")
            token_ids = model.tokenizer.encode(text, add_special_tokens=False)
            return _prompt(token_ids, field="messages", text=text)

        is_long = len(str(messages)) + len(str(tools)) > MAX_INLINE_CHARS
        return await self._threads.run(encode, is_long=is_long, tenant=tenant)


def check_text_length(text: str, *, model: ServedModel, field: str) -> None:
    """Refuses a text that is far too long before all of it is tokenised: for megabytes that takes many seconds. Pieces
    have as many tokens as the whole, but for some where they are cut.

    Raises:
        ContextLengthError: it has more than twice the tokens that the model takes.
    """
    if len(text) <= _LIKELY_CHARS_PER_TOKEN * model.max_model_len:
        return
    num_tokens = 0
    for start in range(0, len(text), _PIECE_CHARS):
        num_tokens += len(model.tokenizer.encode(text[start : start + _PIECE_CHARS], add_special_tokens=False))
        if num_tokens > 2 * model.max_model_len:
            raise ContextLengthError(
                f"This model's context holds {model.max_model_len} tokens; {field} has more than twice as many.",
                hint="Shorten it.",
                field=field,
            )


def check_token_ids(token_ids: Sequence[int], *, model: ServedModel, field: str) -> None:
    """InvalidArgumentError where the model's vocabulary lacks one."""
    vocab_size = model.spec.vocab_size
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        position = next(i for i, token_id in enumerate(token_ids) if not 0 <= token_id < vocab_size)
        raise InvalidArgumentError(
            f"{field}[{position}] is {token_ids[position]}; token ids of this model are below {vocab_size}.",
            field=f"{field}[{position}]",
        )


def _encode(model: ServedModel, item: str | Sequence[int], *, field: str) -> Prompt:
    if isinstance(item, str):
        return _prompt(model.tokenizer.encode(item, add_special_tokens=True), field=field, text=item)
    check_token_ids(item, model=model, field=field)
    return _prompt(item, field=field, text=None)


def _prompt(token_ids: Sequence[int], *, field: str, text: str | None) -> Prompt:
    if not token_ids:
        raise InvalidArgumentError("The prompt is empty.", hint="Send at least one token.", field=field)
    return Prompt(token_ids=tuple(token_ids), field=field, text=text)
