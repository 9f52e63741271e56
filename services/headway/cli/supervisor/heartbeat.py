"""Whether a process answers: one that is stopped or stuck lives, and does nothing."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.core.tls_files import TlsFiles
from headway.rpc.certificates import Certificates, open_channel

_PROBE_TIMEOUT_S = 2.0
MAX_SILENT_PROBES = 5


class Heartbeat:
    """Counts health checks that a process leaves unanswered. It counts checks and no seconds: whoever was stopped
    itself must not take the others for silent.

    Args:
        tls: the files of certificates to call with; None where calls are not encrypted.
    """

    def __init__(self, tls: TlsFiles | None) -> None:
        self._certificates = None if tls is None else Certificates(tls)
        self._endpoint = ""
        self._num_silent = 0

    @property
    def has_stopped(self) -> bool:
        """Whether it has not answered for too long."""
        return self._num_silent >= MAX_SILENT_PROBES

    async def probe(self, endpoint: str) -> None:
        """Asks the process at host:port; a new address is a new process. Where nothing listens nobody is silent: a
        process that has ended is found out otherwise."""
        if endpoint != self._endpoint:
            self._endpoint, self._num_silent = endpoint, 0
        if self._certificates is not None:
            self._certificates.renew()
        async with open_channel(endpoint, self._certificates, options=()) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=_PROBE_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                is_silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                self._num_silent = self._num_silent + 1 if is_silent else 0
            else:
                self._num_silent = 0
