"""Entry point: runs a command and reports its faults."""

import sys
import traceback
from os import environ

import typer

from headway.cli.app import app
from headway.core.errors import HeadwayError


def main() -> None:
    """Runs the command line and returns its exit code: 0 done, 1 a fault, 2 wrong usage."""
    try:
        app(prog_name="headway")
    except HeadwayError as error:
        _report(error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001 - root of the command
        if environ.get("HEADWAY_DEBUG"):
            traceback.print_exc()
        hint = "This is a fault of Headway's own. HEADWAY_DEBUG=1 shows where."
        _report(f"{type(error).__name__}: {error}", hint=hint)


def _report(message: str, *, hint: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(message, err=True)
    if hint:
        typer.echo(f"hint: {hint}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
