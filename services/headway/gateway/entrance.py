"""What every HTTP request passes: an id, the key, and a last resort for bugs.

Pure ASGI, since each event of a stream passes too: it costs one call here. A stream's task is resumed for each event
through all that awaits it, so exchanges are not behind the layers of the application.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.errors import HeadwayError, InternalError
from headway.gateway.keys import ApiKeys
from headway.gateway.openai.error import error_body, error_headers, kind_of
from headway.gateway.request_id import check_request_id, new_request_id
from headway.observe.logging import request_id_var

log = logging.getLogger(__name__)

_HEADER = b"x-request-id"
_PROTECTED = "/v1/"


@dataclass(slots=True)
class _Exit:
    """The way out for one request: adds its id to the answer's head."""

    send: Send
    header: tuple[bytes, bytes]
    has_started: bool = False

    async def __call__(self, message: Message) -> None:
        if not self.has_started and message["type"] == "http.response.start":
            self.has_started = True
            message["headers"] = [*message.get("headers", ()), self.header]
        await self.send(message)


class Entrance:
    """An ASGI application around another.

    Args:
        exchanges: by path, what answers a POST in place of the application.
    """

    def __init__(self, app: ASGIApp, *, exchanges: Mapping[str, Callable[[], ASGIApp]], keys: ApiKeys) -> None:
        self._app = app
        self._exchanges = exchanges
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        own_id = new_request_id()
        out = _Exit(send, (_HEADER, own_id.encode()))
        request_id_var.set(own_id)
        try:
            self._admit(scope["path"], headers, out)
            exchange = self._exchanges.get(scope["path"]) if scope["method"] == "POST" else None
            await (self._app if exchange is None else exchange())(scope, receive, out)
        except HeadwayError as error:
            await send_error(out, error)
        except Exception:
            log.exception("%s %s crashed", scope["method"], scope["path"])
            if out.has_started:
                raise
            await send_error(out, InternalError("The gateway failed to handle this request; its log says why."))

    def _admit(self, path: str, headers: dict[bytes, bytes], out: _Exit) -> None:
        given = headers.get(_HEADER, b"").decode("latin-1")
        if given:
            request_id_var.set(check_request_id(given))
            out.header = (_HEADER, given.encode())
        if path.startswith(_PROTECTED):
            self._keys.check(headers.get(b"authorization", b"").decode("latin-1"))


async def send_error(send: Send, error: HeadwayError) -> None:
    """An OpenAI error document with its status."""
    content = error_body(error)
    headers = {"content-type": "application/json", "content-length": str(len(content)), **error_headers(error)}
    await send(
        {
            "type": "http.response.start",
            "status": kind_of(error)[0],
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": content})
