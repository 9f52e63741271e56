"""The middleware that every HTTP request passes: it gives an id, checks the key, counts the answer, and answers for
bugs.

Pure ASGI, since each event of a stream passes too: it costs one call here. A stream's task is resumed for each event
through all that awaits it, so handlers are not behind the layers of the application.
"""

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.errors import HeadwayError, InternalError, UnavailableError
from headway.gateway.keys import ApiKeys, OperatorKeys, authorization_of
from headway.gateway.openai.error import error_body, error_headers, kind_of
from headway.gateway.request_id import check_request_id, new_request_id
from headway.observe.logging import request_id_var
from headway.observe.metrics import HTTP_REQUESTS

log = logging.getLogger(__name__)

_HEADER = b"x-request-id"
_API = "/v1/"
_OPERATORS = ("/metrics", "/docs", "/redoc", "/openapi.json")
UNKNOWN_HANDLER = "none"


@dataclass(slots=True)
class _Exit:
    """The way out for one request: counts the answer, and adds the request's id to its head."""

    send: Send
    scope: Scope
    paths: Container[str]
    header: tuple[bytes, bytes]
    has_started: bool = False

    async def __call__(self, message: Message) -> None:
        if not self.has_started and message["type"] == "http.response.start":
            self.has_started = True
            HTTP_REQUESTS.labels(self._handler, self.scope["method"], message["status"]).inc()
            message["headers"] = [*message.get("headers", ()), self.header]
        await self.send(message)

    @property
    def _handler(self) -> str:
        """The path's pattern: clients must not be able to make up values of a label."""
        path: str = self.scope["path"]
        return path if path in self.paths else getattr(self.scope.get("route"), "path", UNKNOWN_HANDLER)


class RequestMiddleware:
    """An ASGI application that wraps another with the gateway's checks.

    Args:
        handlers: what answers a POST in place of the application, by path.
        paths: the application's paths without parameters; answers are counted by path.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        handlers: Mapping[str, Callable[[], ASGIApp]],
        paths: Container[str],
        keys: ApiKeys,
        operator_keys: OperatorKeys,
    ) -> None:
        self._app = app
        self._paths = paths
        self._handlers = handlers
        self._keys = keys
        self._operator_keys = operator_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own_id = new_request_id()
        out = _Exit(send, scope, self._paths, (_HEADER, own_id.encode()))
        request_id_var.set(own_id)
        try:
            self._admit(scope["path"], scope["headers"], out)
            handler = self._handlers.get(scope["path"]) if scope["method"] == "POST" else None
            await (self._app if handler is None else handler())(scope, receive, out)
        except HeadwayError as error:
            await send_error(out, error)
        except MemoryError:
            log.warning("%s %s needs more memory than there is", scope["method"], scope["path"])
            if out.has_started:
                raise
            await send_error(out, UnavailableError("The gateway has no memory for it.", hint="Send a smaller request."))
        except Exception:
            log.exception("%s %s crashed", scope["method"], scope["path"])
            if out.has_started:
                raise
            await send_error(out, InternalError("The gateway failed to handle this request; its log says why."))

    def _admit(self, path: str, headers: list[tuple[bytes, bytes]], out: _Exit) -> None:
        given = dict(headers).get(_HEADER, b"").decode("latin-1")
        if given:
            request_id_var.set(check_request_id(given))
            out.header = (_HEADER, given.encode())
        if path in self._handlers or path.startswith(_API):
            self._keys.check(_authorization(headers))
        elif path.startswith(_OPERATORS):
            self._operator_keys.check_path(_authorization(headers))


def _authorization(headers: list[tuple[bytes, bytes]]) -> str:
    return (authorization_of(headers, name=b"authorization") or b"").decode("latin-1")


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
