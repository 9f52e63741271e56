"""Has models loaded again that were unloaded because nobody asked for them."""

import time

from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.gateway.retry_deadline import RetryDeadline
from headway.rpc.peers import Peers
from headway.v1 import controller_pb2, controller_pb2_grpc

_CALL_TIMEOUT_S = 30.0
_PATIENCE_S = 10.0  # a controller that died has a successor by then


class Waker:
    """Asks the controller."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def wake(self, model: str) -> None:
        """Returns when a plan gives the model workers, before they have loaded it.

        Raises:
            UnavailableError: there is no room for it now, or no controller to ask.
        """
        retry = RetryDeadline(time.monotonic)
        request = controller_pb2.WakeModelRequest(model=model)
        while True:
            try:
                await self._peers.call(
                    "controller",
                    controller_pb2_grpc.ControllerServiceStub,
                    lambda stub: stub.WakeModel(request, metadata=self._peers.metadata, timeout=_CALL_TIMEOUT_S),
                )
            except FailedPreconditionError as error:
                raise UnavailableError(
                    error.message, hint=error.hint, field=error.field, retry_after_s=error.retry_after_s
                ) from None
            except UnavailableError as error:
                await retry.wait(error, timeout_s=_PATIENCE_S)
            else:
                return
