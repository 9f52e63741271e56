"""A registry of images that others wrote, Debian's docker-registry, with what ORAS' client pushes there."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import oras.client
import pytest
import yaml

from headway.cli.ports import take_port
from tests.integration.stack import wait_for

_UNPACKED = Path(__file__).resolve().parents[2] / "build/registry/usr/bin/docker-registry"
_PROGRAM = shutil.which("docker-registry") or (str(_UNPACKED) if _UNPACKED.exists() else None)
NAME, PASSWORD = "somebody", "something"
_HASHED = "somebody:$2y$05$abcdefghijklmnopqrstuuSeGDRqgNKjPJSAoh7B1jFKjpwEFc8Mi"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Attributes:
    host: its name and port.
    """

    host: str

    def push(self, directory: Path, *, repository: str) -> None:
        """Each file as a layer of its own."""
        files = [f"{path.name}:application/octet-stream" for path in sorted(directory.iterdir()) if path.is_file()]
        self._push(directory, files, repository)

    def push_folder(self, directory: Path, *, repository: str) -> None:
        """The folder as one archive."""
        self._push(directory.parent, [directory.name], repository)

    def _push(self, directory: Path, files: list[str], repository: str) -> None:
        client = oras.client.OrasClient(hostname=self.host, insecure=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(directory)
            client.push(target=f"{self.host}/{repository}", files=files)


@contextmanager
def serving_registry(directory: Path, *, has_password: bool = False) -> Iterator[Registry]:
    if _PROGRAM is None:
        pytest.skip("there is no docker-registry on PATH nor under build/ (`make test` fetches Debian's package)")
    host = f"127.0.0.1:{take_port('127.0.0.1', 0, option='--port')}"
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(directory / "registry")}},
        "http": {"addr": host},
    }
    if has_password:
        (directory / "accounts").write_text(f"{_HASHED}\n")
        config["auth"] = {"htpasswd": {"realm": "headway", "path": str(directory / "accounts")}}
    (directory / "registry.yml").write_text(yaml.safe_dump(config))
    with (directory / "registry.log").open("wb") as log:
        command = [_PROGRAM, "serve", str(directory / "registry.yml")]
        server = subprocess.Popen(command, stdout=log, stderr=log, env={"OTEL_TRACES_EXPORTER": "none"})
    try:
        wait_for(lambda: httpx.get(f"http://{host}/v2/").status_code != httpx.codes.SERVICE_UNAVAILABLE, timeout_s=30)
        yield Registry(host=host)
    finally:
        server.kill()
        server.wait()
