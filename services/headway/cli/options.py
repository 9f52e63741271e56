"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

StateDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Where the stack keeps its state. Default: ~/.local/state/headway/default.",
        envvar="HEADWAY_STATE_DIR",
        file_okay=False,
        resolve_path=True,
    ),
]
Endpoint: TypeAlias = Annotated[
    str | None, typer.Option(help="host:port of a gateway's gRPC service, instead of a stack on this machine.")
]
ApiKey: TypeAlias = Annotated[
    str | None, typer.Option(help="Key that the gateway asks for.", envvar="HEADWAY_API_KEY", show_envvar=True)
]
CatalogueFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        help="A YAML file of hardware, laid over the built-in catalogue.",
        envvar="HEADWAY_CATALOGUE",
        show_envvar=True,
        dir_okay=False,
        resolve_path=True,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
