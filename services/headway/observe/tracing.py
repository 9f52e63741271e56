"""OpenTelemetry traces from the gateway to the worker's steps. Off unless an OTLP endpoint is configured."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class Tracing:
    """Spans of one process; with no endpoint every method does nothing and nothing is imported."""

    def __init__(self, service: str, *, otlp_endpoint: str | None) -> None:
        self._tracer: Tracer | None = None
        if otlp_endpoint:
            self._tracer = _start_exporter(service, otlp_endpoint)

    @contextmanager
    def span(self, name: str, *, traceparent: str = "", **attributes: str | float) -> Iterator[str]:
        """A span below `traceparent` (or the current one); yields its own traceparent, empty when off."""
        if self._tracer is None:
            yield ""
            return
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        parent = propagator.extract({"traceparent": traceparent}) if traceparent else None
        with self._tracer.start_as_current_span(name, context=parent, attributes=attributes):
            carrier: dict[str, str] = {}
            propagator.inject(carrier)
            yield carrier.get("traceparent", "")

    def record(self, name: str, *, traceparent: str, start_s: float, end_s: float, **attributes: str | float) -> None:
        """A span that has already ended; times in seconds since 1970."""
        if self._tracer is None or not traceparent:
            return
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        span = self._tracer.start_span(name, context=parent, start_time=int(start_s * 1e9), attributes=attributes)
        span.end(end_time=int(end_s * 1e9))


def _start_exporter(service: str, otlp_endpoint: str) -> "Tracer":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"headway-{service}"}))
    insecure = not otlp_endpoint.startswith("https://")
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_endpoint, insecure=insecure)))
    return provider.get_tracer("headway")
