"""The command `headway embed`."""

import json
import sys
from typing import Annotated

import typer

from headway.cli import sampling
from headway.cli.options import ApiKey, AsJson, Endpoint, StateDir
from headway.client import Client, InferOptions
from headway.core.codec import to_document

app = typer.Typer(add_completion=False)


@app.command()
def embed(
    texts: Annotated[list[str], typer.Argument(help="The texts; '-' reads them from standard input, one a line.")],
    *,
    model: sampling.Model = None,
    dimensions: Annotated[int | None, typer.Option(min=1, help="Shorten the vectors.")] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long for the model.")] = False,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Turn texts into vectors.

    Prints a JSON list for each, one a line.
    """
    inputs = sys.stdin.read().splitlines() if texts == ["-"] else texts
    options = InferOptions(truncate_prompt_tokens=-1) if truncate else InferOptions()
    with Client(endpoint, api_key=api_key, state_dir=state_dir) as client:
        answer = client.embed(inputs, model=model, dimensions=dimensions, **options)
    if as_json:
        typer.echo(json.dumps(to_document(answer)))
        return
    for vector in answer.vectors:
        typer.echo(json.dumps([round(value, 7) for value in vector]))
