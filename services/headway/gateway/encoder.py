"""Prompts to token ids, once per request."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.gateway.job import Prompt
from headway.gateway.model import ServedModel
from headway.gateway.text.template import Message

# About a millisecond's work; more of it goes to another thread.
_MAX_INLINE_CHARS = 4096
_NUM_THREADS = 2


class Encoder:
    """Tokenises short texts at once and long ones in threads, so that streams go on meanwhile.

    Attributes:
        pool: those threads.
    """

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="encode")

    async def text(self, model: ServedModel, text: str, *, field: str) -> Prompt:
        """A text with the special tokens that the model's tokenizer puts around one."""
        return await self._encode(model, text, add_special_tokens=True, field=field)

    async def chat(
        self,
        model: ServedModel,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> Prompt:
        """Messages by the model's template, which writes the special tokens itself; see `ChatTemplate.render`."""
        if not messages:
            raise InvalidArgumentError("There are no messages.", hint="Send at least one.", field="messages")
        if model.template is None:
            raise InvalidArgumentError(
                f"The model '{model.name}' has no chat template.",
                hint="Use the completions API, or add a chat_template.jinja to the checkpoint.",
                field="messages",
            )
        text = model.template.render(
            messages, tools=tools, options=options, continue_final_message=continue_final_message
        )
        return await self._encode(model, text, add_special_tokens=False, field="messages")

    def token_ids(self, model: ServedModel, token_ids: Sequence[int], *, field: str) -> Prompt:
        """Token ids as they are."""
        vocab_size = model.spec.vocab_size
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
            position = next(i for i, token_id in enumerate(token_ids) if not 0 <= token_id < vocab_size)
            raise InvalidArgumentError(
                f"{field}[{position}] is {token_ids[position]}; token ids of this model are below {vocab_size}.",
                field=f"{field}[{position}]",
            )
        return _prompt(token_ids, field=field, text=None)

    async def _encode(self, model: ServedModel, text: str, *, add_special_tokens: bool, field: str) -> Prompt:
        if len(text) <= _MAX_INLINE_CHARS:
            token_ids = model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        else:
            loop = asyncio.get_running_loop()
            token_ids = await loop.run_in_executor(
                self.pool, lambda: model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
            )
        return _prompt(token_ids, field=field, text=text)


def _prompt(token_ids: Sequence[int], *, field: str, text: str | None) -> Prompt:
    if not token_ids:
        raise InvalidArgumentError("The prompt is empty.", hint="Send at least one token.", field=field)
    return Prompt(token_ids=tuple(token_ids), field=field, text=text)
