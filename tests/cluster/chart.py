"""The chart, rendered by Helm."""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# Helm that is built by `go install` takes an old one for granted where there is no cluster to ask.
KUBE_VERSION = ("--kube-version", "1.36.0")
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "headway"
VALUES = {path.stem: path for path in sorted((CHART / "ci").glob("*.yaml"))}


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([os.environ["HEADWAY_HELM"], *arguments], capture_output=True, text=True, check=False)


def render(
    *values: Path, changes: Mapping[str, Any] | None = None, release: str = "headway", chart: Path = CHART
) -> str:
    """The release's objects. AssertionError with Helm's words where it refuses the values."""
    result = try_render(*values, changes=changes, release=release, chart=chart)
    assert result.returncode == 0, result.stderr
    return result.stdout


def try_render(
    *values: Path, changes: Mapping[str, Any] | None = None, release: str = "headway", chart: Path = CHART
) -> "subprocess.CompletedProcess[str]":
    """Renders the chart with values files, and with changes laid over them."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(changes or {}), file)
        file.flush()
        named = [part for path in (*values, Path(file.name)) for part in ("--values", str(path))]
        return helm("template", release, str(chart), "--namespace", "serving", *KUBE_VERSION, *named)


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a rendering."""
    return [document for document in yaml.safe_load_all(text) if document]


def without_secrets(text: str) -> str:
    """A rendering with what is drawn at random in it replaced."""
    return re.sub(r"(auth-token|redis-password): [\w+/=]{40,}$", r"\1: DRAWN", text, flags=re.MULTILINE)


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod specs of a rendering by the name of what makes them."""
    return {
        document["metadata"]["name"]: document["spec"]
        if document["kind"] == "Pod"
        else document["spec"]["template"]["spec"]
        for document in found
        if document["kind"] in ("Deployment", "StatefulSet", "Pod")
    }
