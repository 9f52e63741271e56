"""A hub of models as Hugging Face's client asks one: the part of its protocol that a model's files come by.

The client is the real one; what the hub answers follows its documentation.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

COMMIT = "c0ffee" + "0" * 34
_STORED_APART = ".safetensors"


@dataclass
class Hub:
    """Attributes:
    models: directories by ORGANISATION/NAME.
    gated: those for whom terms are to be accepted first.
    token: that everybody has to have; empty for none.
    asked: the paths of files that were asked for, with the range.
    breaks_after: how many bytes of a file are sent before the connection ends, once; 0 for all.
    spoils: a file whose content is another than is told.
    delay_s: how long nothing of a file is sent.
    """

    url: str = ""
    models: dict[str, Path] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    breaks_after: int = 0
    spoils: str = ""
    delay_s: float = 0.0
    closing: Event = field(default_factory=Event)


@contextmanager
def serving_hub(host: str = "127.0.0.1") -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer((host, 0), handler)
    hub.url = f"http://{host}:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = urlsplit(self.path).path.strip("/")
        is_about = path.startswith("api/models/")
        organisation, name, *rest = path.removeprefix("api/models/").split("/")
        model, revision, file = f"{organisation}/{name}", rest[1] if rest else "main", "/".join(rest[2:])
        if self.hub.token and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            self._refuse(HTTPStatus.UNAUTHORIZED, "")
        elif model not in self.hub.models:
            self._refuse(HTTPStatus.NOT_FOUND, "RepoNotFound")
        elif model in self.hub.gated:
            self._refuse(HTTPStatus.FORBIDDEN, "GatedRepo")
        elif revision not in ("main", "v1", COMMIT):
            self._refuse(HTTPStatus.NOT_FOUND, "RevisionNotFound")
        elif is_about:
            self._send(json.dumps(_about(model, self.hub.models[model])).encode(), {})
        else:
            self._send_file(self.hub.models[model] / file, file, has_body=has_body)

    def _send_file(self, path: Path, name: str, *, has_body: bool) -> None:
        content = path.read_bytes()
        etag = hashlib.sha256(content).hexdigest()
        if name == self.hub.spoils:
            content = bytes(len(content))
        asked = self.headers.get("range", "")
        start = int(asked.removeprefix("bytes=").partition("-")[0] or 0) if asked else 0
        if has_body:
            self.hub.asked.append((name, asked))
            self.hub.closing.wait(self.hub.delay_s)
        whole, content = len(content), content[start:]
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{whole - 1}/{whole}"
        sent = content
        if has_body and 0 < self.hub.breaks_after < len(content):
            sent, self.hub.breaks_after = content[: self.hub.breaks_after], 0
            self.close_connection = True
        self.send_response(HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK)
        for header, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(header, value)
        self.end_headers()
        if has_body:
            with suppress(BrokenPipeError, ConnectionResetError):  # who asked is gone
                self.wfile.write(sent)

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(HTTPStatus.OK)
        for header, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        body = b"{}"
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _about(model: str, directory: Path) -> dict[str, object]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {"id": model, "modelId": model, "sha": COMMIT, "siblings": [_sibling(path, directory) for path in files]}


def _sibling(path: Path, directory: Path) -> dict[str, object]:
    content = path.read_bytes()
    told: dict[str, object] = {"rfilename": path.relative_to(directory).as_posix(), "size": len(content)}
    if path.suffix == _STORED_APART:
        told["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return told
