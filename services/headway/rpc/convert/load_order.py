"""Load orders: a worker gets one for each model."""

from dataclasses import replace

from headway.core.load_order import DEFAULT_COLLECTIVE_TIMEOUT_S, DEFAULT_STEP_TIMEOUT_S, LoadOrder, check_load_order
from headway.rpc.convert.document import from_pb, to_pb
from headway.v1 import worker_pb2


def load_order_to_pb(order: LoadOrder) -> worker_pb2.LoadModelRequest:
    """All but what it takes of memory, which is the controller's own."""
    return to_pb(order, worker_pb2.LoadModelRequest, without={"memory_bytes"})


def load_order_from_pb(request: worker_pb2.LoadModelRequest) -> LoadOrder:
    """What older controllers leave out is as the worker has it by default. InvalidArgumentError names a field that
    cannot be as it is."""
    order = from_pb(request, LoadOrder)
    order = replace(
        order,
        preemption=order.preemption or "auto",
        collective_timeout_s=order.collective_timeout_s or DEFAULT_COLLECTIVE_TIMEOUT_S,
        step_timeout_s=order.step_timeout_s or DEFAULT_STEP_TIMEOUT_S,
    )
    check_load_order(order)
    return order
