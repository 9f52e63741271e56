"""The command `headway version`."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from headway.cli.options import AsJson

app = typer.Typer(add_completion=False)

_PACKAGES = ("headway", "torch", "grpcio", "redis", "fastapi")


@app.command()
def show_version(*, as_json: AsJson = False) -> None:
    """Show versions."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES}
    if as_json:
        typer.echo(json.dumps(versions, indent=2))
        return
    typer.echo(f"headway {versions.pop('headway')}")
    for name, text in versions.items():
        typer.echo(f"  {name} {text}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
