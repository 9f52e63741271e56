"""Captured training steps, kept so that the same one is not captured twice."""

import asyncio
import hashlib
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path

from headway.cli.search.progress import Show
from headway.client.stack import default_state_dir
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph
from headway.core.graph_file import graph_bytes
from headway.core.search_progress import SearchProgress
from headway.rpc.child import call_child

_BATCH = 2  # examples: with one there is no loop over them
_DIRECTORY = "captures"
_CONFIG = "config.json"


async def capture_training_step(
    source: str, *, seq: int | None, state_dir: Path | None, deadline_s: float, show: Show
) -> bytes:
    """The graph of a training step as a file; see `headway.core.graph_file`.

    Models of the zoo and checkpoints are captured once; `module:factory` always, as its code may have changed.

    Raises:
        HeadwayError: the capture's own.
    """
    request = CaptureRequest(source=source, batch=_BATCH, seq=seq, train=True)
    kept = None if request.is_code else _kept_at(request, state_dir or default_state_dir())
    if kept is not None and kept.exists():
        return await asyncio.to_thread(kept.read_bytes)
    graph = await _capture(request, deadline_s=deadline_s, show=show)
    if not graph.gradients:
        raise InvalidArgumentError(
            f"{source} has nothing to train.", hint="No parameter gets a gradient.", field="model"
        )
    content = graph_bytes(graph)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(kept)
    return content


async def _capture(request: CaptureRequest, *, deadline_s: float, show: Show) -> Graph:
    """Captures in a child process, which starts in this directory so that it finds `module:factory`."""
    graph = None
    async with aclosing(call_child("headway.profiler.capture", to_document(request), deadline_s=deadline_s)) as answers:
        async for answer in answers:
            progress = from_document(CaptureProgress, answer)
            graph = progress.graph
            show(SearchProgress(phase=f"capturing {request.source}: {progress.phase}"))
    assert graph is not None, "a capture that ends well has a graph"
    return graph


def _kept_at(request: CaptureRequest, state_dir: Path) -> Path:
    """Of a checkpoint the name goes with what its configuration says."""
    config = Path(request.source) / _CONFIG
    facts = [version("headway"), request.source, str(request.seq), config.read_text() if config.is_file() else ""]
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    return state_dir / _DIRECTORY / f"{name}.graph"
