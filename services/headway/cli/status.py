"""The command `headway status`."""

import json
import time
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from headway.cli.options import ApiKey, AsJson, Endpoint, StateDir
from headway.cli.running import cluster_status
from headway.cli.status_view import status_view
from headway.core.codec import to_document
from headway.core.errors import UnavailableError

app = typer.Typer(add_completion=False)

_REFRESH_EVERY_S = 1.0


@app.command()
def status(
    *,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")] = False,
) -> None:
    """Show services, workers, load, SLO attainment and the plan."""

    def look() -> RenderableType:
        return status_view(cluster_status(endpoint, api_key=api_key, state_dir=state_dir), now_s=time.time())

    if as_json:
        current = cluster_status(endpoint, api_key=api_key, state_dir=state_dir)
        typer.echo(json.dumps(to_document(current), indent=2))
    elif not watch:
        Console().print(look())
    else:
        with Live(look(), auto_refresh=False) as live:
            while True:
                time.sleep(_REFRESH_EVERY_S)
                try:
                    live.update(look(), refresh=True)
                except UnavailableError as error:
                    live.update(Text(str(error), style="red"), refresh=True)
