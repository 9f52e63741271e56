"""A process's metrics over HTTP, for whoever reaches the port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from headway.observe.exposition import serve_metrics

NUM_SILENT = 300


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    server = serve_metrics("127.0.0.1", 0, probes={"/live": lambda: True})
    yield "127.0.0.1", server.server_port
    server.shutdown()
    server.server_close()


def test_connections_that_ask_nothing_take_few_threads_and_nobody_elses_place(address: tuple[str, int]) -> None:
    num_before = threading.active_count()
    with ExitStack() as ends:
        for number in range(NUM_SILENT):
            connection = ends.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(b"GET /metr" if number % 2 else b"")
        for path in ("live", "metrics"):
            assert httpx.get(f"http://{address[0]}:{address[1]}/{path}", timeout=20).status_code == 200
        assert threading.active_count() - num_before <= 70


def test_a_client_that_leaves_is_no_fault(address: tuple[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        with socket.create_connection(address, timeout=20) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # by a reset
            connection.sendall(b"GET /metrics HTTP/1.1\r\nh:")
    assert httpx.get(f"http://{address[0]}:{address[1]}/live", timeout=20).status_code == 200
    assert capfd.readouterr().err == ""
