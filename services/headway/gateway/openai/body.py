"""Reads the body of an HTTP request."""

from collections.abc import Callable
from typing import Any

import orjson
from starlette.types import Receive, Scope

from headway.core.errors import InvalidArgumentError
from headway.gateway.disconnect import ClientLeftError
from headway.gateway.errors import BodyTooLargeError
from headway.gateway.openai.pieces import loads_in_pieces

# Of numbers, these take about a millisecond.
_PIECE_BYTES = 64 * 1024
_LARGE_BYTES = 2 * _PIECE_BYTES


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int, grow: Callable[[int], None]) -> bytes:
    """Reads the whole body of a request.

    Args:
        grow: is told its size as it comes; what it raises passes through.

    Raises:
        BodyTooLargeError: it is larger than `max_bytes`.
        ClientLeftError: the client left while sending it.
    """
    declared_bytes = _declared_bytes(scope)
    body = bytearray()
    has_more = True
    while has_more and max(declared_bytes, len(body)) <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body += message.get("body", b"")
        grow(len(body))
        has_more = message.get("more_body", False)
    if has_more or len(body) > max_bytes:
        raise BodyTooLargeError(
            f"The body is larger than {max_bytes} bytes.", hint="Send less, or raise --max-body-bytes."
        )
    return bytes(body)


def parse_json(content: bytes) -> dict[str, Any]:
    """The JSON object in a body; InvalidArgumentError where there is none. A large one is parsed in pieces."""
    is_large = len(content) > _LARGE_BYTES
    try:
        document = loads_in_pieces(content, piece_bytes=_PIECE_BYTES) if is_large else orjson.loads(content)
    except orjson.JSONDecodeError as error:
        fault = error.msg if is_large else error  # which knows its place within the piece
        raise InvalidArgumentError(
            f"The body is not valid JSON: {fault}.", hint="Send a JSON object in UTF-8."
        ) from None
    if not isinstance(document, dict):
        raise InvalidArgumentError("The body is not a JSON object.", hint='Send one, such as {"model": "..."}.')
    return document


def _declared_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
