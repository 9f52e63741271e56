"""`headway profile model`"""

import asyncio
import json
from contextlib import aclosing
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.graph_view import graph_document, graph_view
from headway.cli.options import AsJson
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph
from headway.rpc.child import call_child


def profile_model(
    source: Annotated[str, typer.Argument(help="A checkpoint directory, module:factory or zoo:NAME.", metavar="MODEL")],
    *,
    batch: Annotated[int, typer.Option(help="Examples at once.")] = 1,
    seq: Annotated[int | None, typer.Option(help="Tokens of an example. Default: the model's longest.")] = None,
    train: Annotated[bool, typer.Option("--train", help="The backward pass too.")] = False,
    capture_only: Annotated[bool, typer.Option("--capture-only", help="Measure nothing.")] = False,
    as_json: AsJson = False,
    operators: Annotated[bool, typer.Option("--operators", help="List all operators, also in the JSON.")] = False,
    deadline_s: Annotated[float, typer.Option("--deadline", help="Seconds after which to give up.", min=1)] = 600.0,
) -> None:
    """Show what a model consists of: operators, FLOPs, bytes. Needs neither weights nor a running stack."""
    if not capture_only:
        raise InvalidArgumentError(
            "Operators are not measured on their own.",
            hint="Add --capture-only; `headway up` measures the steps of the models that it serves.",
        )
    request = CaptureRequest(source=source, batch=batch, seq=seq, train=train)
    graph = asyncio.run(_capture(request, deadline_s=deadline_s))
    if as_json:
        typer.echo(json.dumps(graph_document(graph, with_operators=operators), indent=2))
    else:
        Console().print(graph_view(graph, num_operators=None if operators else 20))


async def _capture(request: CaptureRequest, *, deadline_s: float) -> Graph:
    """In a process of its own, which has this one's directory for `module:factory`."""
    graph = None
    answers = call_child("headway.profiler.capture", to_document(request), deadline_s=deadline_s)
    with Console(stderr=True).status("starting") as status:
        async with aclosing(answers):
            async for answer in answers:
                progress = from_document(CaptureProgress, answer)
                graph = progress.graph
                status.update(progress.phase)
    assert graph is not None, "a capture that ends well has a graph"
    return graph
