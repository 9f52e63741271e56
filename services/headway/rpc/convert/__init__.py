"""Protobuf to core types and back. Protobuf messages go no further than servicers and clients."""

from headway.rpc.convert.document import from_pb, to_pb
from headway.rpc.convert.load_order import load_order_from_pb, load_order_to_pb
from headway.rpc.convert.sampling import guide_from_pb, guide_to_pb, sampling_from_pb, sampling_to_pb
from headway.rpc.convert.token import (
    finish_reason_from_pb,
    finish_reason_to_pb,
    group_from_pb,
    group_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    output_from_pb,
    output_to_pb,
    request_from_pb,
    request_to_pb,
)

__all__ = [
    "finish_reason_from_pb",
    "finish_reason_to_pb",
    "from_pb",
    "group_from_pb",
    "group_to_pb",
    "guide_from_pb",
    "guide_to_pb",
    "load_order_from_pb",
    "load_order_to_pb",
    "logprobs_from_pb",
    "logprobs_to_pb",
    "output_from_pb",
    "output_to_pb",
    "request_from_pb",
    "request_to_pb",
    "sampling_from_pb",
    "sampling_to_pb",
    "to_pb",
]
