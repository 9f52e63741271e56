"""Options of the commands that place models."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from headway.cli.duration import parse_duration

Models: TypeAlias = Annotated[
    Path, typer.Option(help="YAML: the models, where their latencies are from, and objectives.")
]
Cluster: TypeAlias = Annotated[
    str,
    typer.Option(
        help="YAML: the devices, and their memory for models; or 'live', the workers of a running stack.",
        metavar="FILE|live",
    ),
]
Workload: TypeAlias = Annotated[
    str,
    typer.Option(
        help="trace.csv, gamma:rate=20,cv=4, poisson:rate=20, powerlaw:rate=20,alpha=1, azure:FILE or replay:FILE. "
        "Files may be followed by ,window=SECONDS,rate_scale=2,cv_scale=2 to be resampled, or by ,moved=SECONDS.",
        metavar="SPEC",
    ),
]
HeldOut: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Other requests, to check the result on. Default: a file's second half, or as much generated again.",
        metavar="SPEC",
    ),
]
Profiles: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="A file of stage profiles in AlpaServe's form. Default: those that were imported."),
]
SloScale: TypeAlias = Annotated[
    float, typer.Option(help="A model's SLO over its latency alone, where it has none.", min=1e-6)
]
Duration: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Seconds of requests. Default: the whole file, or 600 generated.", min=1e-3),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Of requests and search.", min=0)]
TimeLimit: TypeAlias = Annotated[
    float | None, typer.Option(help="Seconds after which to take the best so far.", min=0.01)
]
Anew: TypeAlias = Annotated[
    bool, typer.Option("--anew", help="Search even though the result is known, and from nothing.")
]
Detach: TypeAlias = Annotated[
    bool, typer.Option("--detach", help="Leave the search to the stack; `headway plan jobs` follows it.")
]
Processes: TypeAlias = Annotated[
    int | None,
    typer.Option(help="That search at once. Default: one, or as many as a Ray cluster has cores.", min=1, max=4096),
]
RayAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        "--ray",
        help="Search on the machines of a Ray cluster: HOST:PORT, ray://HOST:PORT, or 'auto' for the one that this "
        "machine is part of. Needs headway's extra 'ray'.",
        metavar="ADDRESS",
    ),
]
AnswerOverhead: TypeAlias = Annotated[
    Any,
    typer.Option(
        parser=parse_duration,
        metavar="5ms",
        help="What an answer takes from the client to the group and back, besides the model. Default: what the "
        "stack counts with --cluster live, else nothing.",
    ),
]
QueuePolicy: TypeAlias = Annotated[
    Literal["fcfs", "least-slack"] | None,
    typer.Option(
        help="Who is next in a group: the first that came, or the one that could wait least before it misses its "
        "objective. Default: the stack's with --cluster live, else least-slack; fcfs where models generate and with "
        "--rules artifact, which are simulated so only.",
    ),
]
Rules: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How requests are dispatched and memory is counted: serving, or artifact (as AlpaServe's artifact does)."
    ),
]
