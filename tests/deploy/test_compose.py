"""The stack with Prometheus and Grafana beside it, as far as it can be told without containers."""

from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from headway.cli import up

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]


def test_the_command_is_one_that_headway_up_takes() -> None:
    program, command, *arguments = COMPOSE["headway"]["command"]
    assert (program, command) == ("headway", "up")
    known = {option for parameter in get_command(up.app).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_what_is_mounted_is_there() -> None:
    mounted = [volume.split(":")[0] for service in COMPOSE.values() for volume in service["volumes"]]
    local = [ROOT / "deploy" / path for path in mounted if path.startswith("./")]
    assert local
    assert [path for path in local if not path.exists()] == []


def test_prometheus_scrapes_as_without_containers_but_with_the_stacks_token() -> None:
    plain, compose = (_prometheus(name) for name in ("prometheus", "compose"))
    plain["scrape_configs"] = [job for job in plain["scrape_configs"] if job["job_name"] == "headway"]  # no training
    [discovery] = compose["scrape_configs"][0]["http_sd_configs"]
    assert discovery.pop("authorization") == {"credentials_file": "/state/auth-token"}
    assert compose == plain
    state_dir = COMPOSE["headway"]["command"][COMPOSE["headway"]["command"].index("--state-dir") + 1]
    assert state_dir == "/state"


def test_they_are_not_reached_from_other_machines() -> None:
    published = [port for service in COMPOSE.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def _prometheus(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / f"deploy/prometheus/{name}.yml").read_text())
    return document
