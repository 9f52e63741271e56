"""Answers of POST /tokenize and /detokenize, in vLLM's shape. No worker is asked."""

from typing import Any

from headway.gateway.job import Arrival
from headway.gateway.model import ServedModel
from headway.gateway.openai.tokens_schema import DetokenizeRequest, TokenizeRequest
from headway.gateway.prompt_tokenizer import MAX_INLINE_CHARS, check_token_ids
from headway.gateway.service import GatewayService

_MAX_INLINE_MESSAGES = 256


async def tokenize(service: GatewayService, request: TokenizeRequest, arrival: Arrival) -> dict[str, Any]:
    """The tokens of a prompt, or of messages as the model's chat template writes them, however many they are."""
    request.check()
    model = await service.served_models.get(request.model)
    token_ids = await _encode(service, model, request, tenant=arrival.tenant)
    names = None
    if request.return_token_strs:
        names = await service.threads.run(
            lambda: list(map(model.tokenizer.name, token_ids)),
            is_long=len(token_ids) > MAX_INLINE_CHARS,
            tenant=arrival.tenant,
        )
    return {"count": len(token_ids), "max_model_len": model.max_model_len, "tokens": token_ids, "token_strs": names}


async def detokenize(service: GatewayService, request: DetokenizeRequest, arrival: Arrival) -> dict[str, Any]:
    """The text of tokens, special ones by their names."""
    model = await service.served_models.get(request.model)
    check_token_ids(request.tokens, model=model, field="tokens")
    text = await service.threads.run(
        lambda: model.tokenizer.with_special_tokens.decode(request.tokens),
        is_long=len(request.tokens) > MAX_INLINE_CHARS,
        tenant=arrival.tenant,
    )
    return {"prompt": text}


async def _encode(service: GatewayService, model: ServedModel, request: TokenizeRequest, *, tenant: str) -> list[int]:
    if (messages := request.messages) is None:
        text = request.prompt or ""
        return await service.threads.run(
            lambda: model.tokenizer.encode(text, add_special_tokens=request.add_special_tokens),
            is_long=len(text) > MAX_INLINE_CHARS,
            tenant=tenant,
        )
    documents = await service.threads.run(
        lambda: [message.document(field=f"messages[{i}]") for i, message in enumerate(messages)],
        is_long=len(messages) > _MAX_INLINE_MESSAGES,
        tenant=tenant,
    )
    prompt = await service.prompt_tokenizer.chat(
        model,
        documents,
        tools=[tool.model_dump(exclude_unset=True) for tool in request.tools] or None,
        options=request.chat_template_kwargs | {"add_generation_prompt": request.add_generation_prompt},
        continue_final_message=request.continue_final_message,
        tenant=tenant,
        is_to_fit=False,
    )
    return list(prompt.token_ids)
