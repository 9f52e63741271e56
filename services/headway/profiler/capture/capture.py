"""Captures the model that the user names as a graph."""

from collections.abc import Callable

from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.token_slices import TokenSlices
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program, check_constants
from headway.profiler.capture.source import load
from headway.profiler.capture.tokens import first_tokens
from headway.profiler.capture.trace import trace


def capture(request: CaptureRequest, *, report: Callable[[str], None]) -> CaptureProgress:
    """Captures the graph of one step of the model, and its program where that is asked for.

    Args:
        report: is told each phase as it begins.

    Raises:
        HeadwayError: the source can't be loaded, or its module does not export, or has what the request is without.
        FailedPreconditionError: it is to be captured with fewer tokens, and is no causal language model.
    """
    report(f"loading {request.source}")
    source = load(request)
    traced = trace(source.module, source.inputs, train=request.train, targets=source.targets, report=report)
    if request.without_constants:
        check_constants(traced)
    report(f"analysing {len(traced.graph.graph.nodes)} nodes")
    graph = build_graph(traced, name=request.source, is_training=request.train, batch=request.batch)
    shorter = {}
    if request.lengths:
        TokenSlices(graph)
    for length in request.lengths:
        report(f"with {length} tokens")
        inputs, targets = first_tokens((source.inputs, source.targets), length)
        fewer = trace(source.module, inputs, train=request.train, targets=targets, report=lambda _: None)
        shorter[str(length)] = build_program(fewer)
    program = build_program(traced) if request.with_program else None
    return CaptureProgress(graph=graph, program=program, shorter=shorter or None)
