"""A registry of images that answers as some do: it compresses what it sends where it may, or wants a token."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
FILE = "application/octet-stream"
TITLE = "org.opencontainers.image.title"


@contextmanager
def pretending_registry(
    layers: Sequence[tuple[bytes, str, dict[str, str]]], *, token: bytes | None = None
) -> Iterator[str]:
    """Yields the URI of the one image that it has.

    Args:
        layers: bytes, media type and annotations of each.
        token: what is answered to whoever asks for a token; None where nobody needs one.
    """
    blobs = {f"sha256:{hashlib.sha256(content).hexdigest()}": content for content, _, _ in layers}
    described = [
        {"mediaType": kind, "digest": digest, "size": len(blobs[digest]), "annotations": annotations}
        for digest, (_, kind, annotations) in zip(blobs, layers, strict=True)
    ]
    manifest = json.dumps({"schemaVersion": 2, "layers": described}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/token"):
                self._answer(200, token or b"")
            elif token is not None:
                host, port = self.server.server_address[:2]
                self._answer(401, b"", **{"www-authenticate": f'Bearer realm="http://{host!s}:{port}/token"'})
            elif "/manifests/" in self.path:
                self._answer(200, manifest)
            elif "gzip" in self.headers.get("accept-encoding", ""):
                content = gzip.compress(blobs[self.path.rpartition("/")[2]])
                self._answer(200, content, **{"content-encoding": "gzip"})
            else:
                self._answer(200, blobs[self.path.rpartition("/")[2]])

        def _answer(self, status: int, content: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """What is asked is nobody's business."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"oci://127.0.0.1:{server.server_address[1]}/llamas/tiny:v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
