"""A real Prometheus, which a test starts."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.cli.ports import take_port
from tests.integration.stack import wait_for

_UNPACKED = Path(__file__).resolve().parents[1] / "build/prometheus/usr/bin/prometheus"
_PROGRAM = shutil.which("prometheus") or (str(_UNPACKED) if _UNPACKED.exists() else None)
RULES = "rules.yml"
"""What a configuration calls the file of its rules."""


class Prometheus:
    """One that runs, at an address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> list[Any]:
        """The series of an instant query. AssertionError where it is none."""
        answer = self._get("query", query=expr)
        assert answer["status"] == "success", f"{expr}: {answer.get('error')}"
        found: list[Any] = answer["data"]["result"]
        return found

    def targets(self) -> list[Any]:
        """Those that it scrapes."""
        found: list[Any] = self._get("targets")["data"]["activeTargets"]
        return found

    def renamed_labels(self) -> list[str]:
        """Labels of metrics that it calls otherwise, since their target has one of the same name."""
        return [label for label in self._get("labels")["data"] if label.startswith("exported_")]

    def rules(self) -> list[Any]:
        return [rule for group in self._get("rules")["data"]["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        return httpx.get(f"{self.url}/api/v1/{what}", params=parameters).json()


@contextmanager
def prometheus(directory: Path, *, config: str, rules: str) -> Iterator[Prometheus]:
    """Runs it in a directory of its own. The test is skipped where there is none."""
    if _PROGRAM is None:
        pytest.skip("there is no Prometheus on PATH nor under build/ (`make test` fetches Debian's package)")
    address = f"127.0.0.1:{take_port('127.0.0.1', 0, option='--port')}"
    (directory / "prometheus.yml").write_text(config)
    (directory / RULES).write_text(rules)
    command = [
        _PROGRAM,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        wait_for(lambda: httpx.get(f"http://{address}/-/ready").status_code == 200, timeout_s=60)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(30)
