"""From what the user names to a graph."""

from collections.abc import Callable

from headway.core.capture import CaptureRequest
from headway.core.graph import Graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.source import load
from headway.profiler.capture.trace import trace


def capture(request: CaptureRequest, *, report: Callable[[str], None]) -> Graph:
    """The graph of one step of the model.

    Args:
        report: is told each phase as it begins.

    Raises:
        HeadwayError: the source can't be loaded, or its module does not export.
    """
    report(f"loading {request.source}")
    module, inputs = load(request)
    traced = trace(module, inputs, train=request.train, report=report)
    report(f"analysing {len(traced.graph.graph.nodes)} nodes")
    return build_graph(traced, name=request.source, is_training=request.train)
