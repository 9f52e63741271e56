import socket

import pytest

from headway.cli.ports import take_port
from headway.core.errors import AlreadyExistsError, InvalidArgumentError


def test_a_free_port_is_taken_as_asked_and_zero_finds_one() -> None:
    port = take_port("127.0.0.1", 0, option="--port")
    assert port > 0
    assert take_port("127.0.0.1", port, option="--port") == port


def test_a_port_in_use_is_refused_with_a_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(AlreadyExistsError, match=f"Port {port}") as taken:
            take_port("127.0.0.1", port, option="--grpc-port")
    assert "--grpc-port 0" in taken.value.hint


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"192\.0\.2\.1"):
        take_port("192.0.2.1", 0, option="--port")
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        take_port("nowhere.invalid", 0, option="--port")
