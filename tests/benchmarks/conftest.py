"""Scripted servers as processes of their own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.serve.peers import Deployment, Launch
from benchmarks.serve.server import Server, free_port
from tests.benchmarks import scripted

MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path: Path) -> MakeServer:
    """Makes a server that is not started yet; `command` may use {port} and {server}."""

    def make(name: str = "scripted", *, command: str = "exec {server} {port}") -> Server:
        port = free_port()
        deployment = Deployment(model_name="m", model_dir=tmp_path, port=port, state_dir=tmp_path)
        shell = command.format(server=f"{sys.executable} {scripted.__file__}", port=port)
        launch = Launch(command=("bash", "-c", shell), env=os.environ, ready_path="/ready")
        return Server(name, deployment=deployment, launch=launch, log_path=tmp_path / f"{name}.log")

    return make
