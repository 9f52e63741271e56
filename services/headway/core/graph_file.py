"""Captured graphs as files."""

import json
import zlib

from headway.core.codec import from_document, to_document
from headway.core.graph import Graph


def graph_bytes(graph: Graph) -> bytes:
    """A graph as compressed JSON."""
    return zlib.compress(json.dumps(to_document(graph), separators=(",", ":")).encode())


def graph_of(content: bytes) -> Graph:
    """The graph of such a file."""
    return from_document(Graph, json.loads(zlib.decompress(content)))
