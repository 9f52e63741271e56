"""Converts requests to protobuf and answers from it, for both clients."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from headway.client.chunk import Chunk, ServedModel, Usage
from headway.client.prompt import GenerateOptions, Message, Prompt
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.request import GuideKind
from headway.rpc.convert import finish_reason_from_pb, from_pb, logprobs_from_pb
from headway.v1 import common_pb2, inference_pb2

_GUIDE_KINDS = {kind.value for kind in GuideKind} - {GuideKind.JSON_OBJECT.value}
_OWN_FIELDS = ("slo_ttft_s", "slo_tpot_s", "slo_ms", "priority", "request_id", "timeout_s")


def request_to_pb(prompt: Prompt, *, model: str | None, options: GenerateOptions) -> inference_pb2.GenerateRequest:
    """Converts a generation request; `timeout_s` is the call's and not part of it.

    Raises:
        TypeError: an option that does not exist.
        InvalidArgumentError: a prompt or an option of the wrong type.
    """
    if unknown := options.keys() - GenerateOptions.__annotations__:
        raise TypeError(f"generate() got an unexpected keyword argument {min(unknown)!r}")
    with _type_faults("model or request_id"):
        request = inference_pb2.GenerateRequest(model=model or "", request_id=options.get("request_id", ""))
    with _type_faults("priority"):
        request.priority = options.get("priority", 0)
    with _type_faults("slo_ttft_s, slo_tpot_s or slo_ms"):
        slo_ms = options.get("slo_ms")
        slo = common_pb2.Slo(ttft_s=options.get("slo_ttft_s"), tpot_s=options.get("slo_tpot_s"))
        if slo_ms is not None:
            slo.e2e_s = slo_ms / 1000
        request.slo.CopyFrom(slo)
    if len(guides := sorted(_GUIDE_KINDS & options.keys())) > 1:
        raise InvalidArgumentError(
            f"{guides[0]} and {guides[1]} exclude each other.", hint="Leave one of them out.", field=guides[1]
        )
    for name, value in options.items():
        if name not in _OWN_FIELDS:
            _set_option(request.options, name, value)
    _set_prompt(request, prompt)
    return request


def tokenize_to_pb(prompt: Prompt, *, model: str) -> inference_pb2.TokenizeRequest:
    """Converts a prompt; InvalidArgumentError where it is neither text nor messages."""
    request = inference_pb2.GenerateRequest()
    _set_prompt(request, prompt)
    match request.WhichOneof("prompt"):
        case "text":
            return inference_pb2.TokenizeRequest(model=model, text=request.text)
        case "chat":
            return inference_pb2.TokenizeRequest(model=model, chat=request.chat)
    raise InvalidArgumentError("Token ids need no tokenizer.", hint="Give a text or messages.", field="prompt")


def chunk_from_pb(message: inference_pb2.GenerateResponse) -> Chunk:
    return Chunk(
        request_id=message.request_id,
        index=message.index,
        text=message.text,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(map(logprobs_from_pb, message.logprobs)),
        prompt_logprobs=tuple(map(logprobs_from_pb, message.prompt_logprobs)),
        finish_reason=finish_reason_from_pb(message.finish_reason),
        usage=from_pb(message.usage, Usage) if message.HasField("usage") else None,
    )


def models_from_pb(message: inference_pb2.ListModelsResponse) -> list[ServedModel]:
    return [from_pb(model, ServedModel) for model in message.models]


def only_model(models: Sequence[ServedModel]) -> str:
    """The name of the one model that is served, which a request without a name means."""
    if not models:
        raise NotFoundError("No model is being served yet.", hint="`headway status` shows what is being waited for.")
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise InvalidArgumentError("Several models are served.", hint=f"Name one of {names}.", field="model")
    return models[0].name


def check_single(options: GenerateOptions) -> None:
    """Checks that options ask for one sequence, as `generate_text` returns one text."""
    if options.get("n", 1) != 1:
        raise InvalidArgumentError(
            "generate_text returns one sequence, so n must be 1.", hint="Use generate for several.", field="n"
        )


def _set_option(message: inference_pb2.GenerateOptions, name: str, value: object) -> None:
    if name == "stop" and isinstance(value, str):
        value = [value]
    with _type_faults(name):
        if name == "logit_bias":
            pairs = dict(cast("Mapping[int, float]", value)).items()
            value = [common_pb2.LogitBias(token_id=token_id, bias=bias) for token_id, bias in pairs]
        elif name in _GUIDE_KINDS:
            name, value = "guide", _guide_to_pb(GuideKind(name), value)
        message.MergeFrom(inference_pb2.GenerateOptions(**cast("Any", {name: value})))


def _guide_to_pb(kind: GuideKind, value: object) -> common_pb2.Guide:
    match kind:
        case GuideKind.JSON_SCHEMA if isinstance(value, Mapping):
            text = json.dumps(value)
        case GuideKind.CHOICE:
            text = json.dumps(list(cast("Sequence[str]", value)))
        case _:
            text = cast("str", value)
    return common_pb2.Guide(kind=kind, text=text)


def _set_prompt(request: inference_pb2.GenerateRequest, prompt: Prompt) -> None:
    with _type_faults("prompt"):
        if isinstance(prompt, str):
            request.text = prompt
        elif prompt and isinstance(prompt[0], Mapping):
            for message in cast("Sequence[Message]", prompt):
                request.chat.messages.append(inference_pb2.ChatMessage(**message))
        else:
            request.token_ids.ids.extend(cast("Sequence[int]", prompt))
            request.token_ids.SetInParent()


@contextmanager
def _type_faults(field: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{field} cannot be sent: {error}.", hint="Check its type and range.", field=field
        ) from error
