"""Requests to models that do not generate: a client's to the gateway, and the gateway's to a worker."""

from collections.abc import Iterable

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferInput, InferRequest, InferSequence, TextInput
from headway.v1 import inference_pb2, worker_pb2


def infer_to_pb(request: InferRequest, *, traceparent: str = "") -> worker_pb2.InferSequencesRequest:
    return worker_pb2.InferSequencesRequest(
        request_id=request.request_id,
        model=request.model,
        sequences=[
            worker_pb2.InferSequence(token_ids=sequence.token_ids, token_type_ids=sequence.token_type_ids)
            for sequence in request.sequences
        ],
        traceparent=traceparent,
        slo_s=request.slo_s,
        priority=request.priority,
    )


def infer_from_pb(message: worker_pb2.InferSequencesRequest) -> InferRequest:
    return InferRequest(
        request_id=message.request_id,
        model=message.model,
        sequences=tuple(
            InferSequence(token_ids=tuple(sequence.token_ids), token_type_ids=tuple(sequence.token_type_ids))
            for sequence in message.sequences
        ),
        slo_s=message.slo_s if message.HasField("slo_s") else None,
        priority=message.priority,
    )


def input_to_pb(value: InferInput) -> inference_pb2.InferInput:
    if not isinstance(value, TextInput):
        return inference_pb2.InferInput(token_ids=inference_pb2.TokenIds(ids=value))
    if value.second is None:
        return inference_pb2.InferInput(text=value.first)
    return inference_pb2.InferInput(pair=inference_pb2.TextPair(first=value.first, second=value.second))


def inputs_from_pb(messages: Iterable[inference_pb2.InferInput]) -> list[InferInput]:
    """InvalidArgumentError names an input that says nothing."""
    inputs: list[InferInput] = []
    for i, message in enumerate(messages):
        match message.WhichOneof("input"):
            case "text":
                inputs.append(TextInput(message.text))
            case "pair":
                inputs.append(TextInput(message.pair.first, message.pair.second))
            case "token_ids":
                inputs.append(tuple(message.token_ids.ids))
            case _:
                raise InvalidArgumentError(
                    f"inputs[{i}] is empty.", hint="Set text, pair or token_ids.", field=f"inputs[{i}]"
                )
    return inputs
