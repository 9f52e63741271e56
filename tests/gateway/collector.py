"""A real OTLP collector that keeps what it is sent."""

from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    spans: list[trace_pb2.Span] = field(default_factory=list)

    async def Export(  # noqa: N802 - the method's name in the protocol
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


async def start(collector: Collector) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
