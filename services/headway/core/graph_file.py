"""Captured graphs as files."""

import json
import zlib
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph

_MAX_BYTES = 512 * 1024 * 1024


def graph_bytes(graph: Graph) -> bytes:
    """A graph as compressed JSON."""
    return zlib.compress(json.dumps(to_document(graph), separators=(",", ":")).encode())


def graph_of(content: bytes) -> Graph:
    """The graph of such a file; InvalidArgumentError where it is none, or unpacks to more than any graph has."""
    return from_document(Graph, _document(content), path="graph")


def _document(content: bytes) -> Any:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(content, _MAX_BYTES)
        if not stream.unconsumed_tail:
            return json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise _fault(str(error)) from error
    raise _fault(f"it unpacks to more than {_MAX_BYTES // 1024**2} MiB")


def _fault(problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The graph cannot be read: {problem}.", hint="Capture the model again.", field="graph")
