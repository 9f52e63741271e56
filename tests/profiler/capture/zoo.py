"""Small models of the zoo, traced in this process; each once."""

from functools import cache

from headway.core.capture import CaptureRequest
from headway.core.graph import Graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.source import load
from headway.profiler.capture.trace import Trace, trace
from headway.profiler.zoo.registry import models

FAMILIES = sorted({model.family: model.small().name for model in models()}.values())


@cache
def traced(name: str, *, batch: int = 2, train: bool = True) -> Trace:
    source = load(CaptureRequest(source=f"zoo:{name}", batch=batch, train=train))
    return trace(source.module, source.inputs, train=train, targets=source.targets, report=lambda _: None)


@cache
def captured(name: str, *, batch: int = 2, train: bool = True) -> Graph:
    return build_graph(traced(name, batch=batch, train=train), name=name, is_training=train, batch=batch)
