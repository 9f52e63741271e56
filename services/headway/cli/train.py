"""The command `headway train`."""

import asyncio
import json
import os
from contextlib import ExitStack, aclosing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from typer.core import TyperGroup

from headway.cli.options import AsJson, StateDir
from headway.cli.process import terminate
from headway.cli.training.view import training_view
from headway.cli.training_run.following import follow_run, leave_run
from headway.cli.training_run.job_file import read_training_job
from headway.cli.training_run.live import LiveRun
from headway.cli.training_run.manifest import PodOptions, check_shared, run_manifest
from headway.cli.training_run.pods import end_pods, submit, submit_again
from headway.cli.training_run.preparing import PreparedRun, prepare_run, write_weights
from headway.cli.training_run.runs import find_run, list_runs, move_run, new_run, starting
from headway.cli.training_run.trace import chrome_trace, draw_trace, read_trace, trace_lines
from headway.cli.training_run.view import (
    gantt_lines,
    lists_table,
    run_document,
    runs_table,
    step_line,
    unshared_lines,
    zero_lines,
)
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.initial_weights import ExportRequest
from headway.core.training_job import TrainingJob
from headway.core.training_run import CHECKPOINTS_DIRECTORY, INITIAL_FILE, LATEST_FILE
from headway.rpc.child import call_child
from headway.rpc.ray_cluster import require_ray

_RUN = "run"
_IMAGE = f"headway-worker:{version('headway')}"
RayAddress = Annotated[
    str,
    typer.Option(
        "--ray",
        help="Train on the machines of a Ray cluster, instead of the job's: HOST:PORT, ray://HOST:PORT, or 'auto' for "
        "the one that this machine is part of. Needs headway's extra 'ray', and --state-dir on storage that they "
        "share.",
        metavar="ADDRESS",
    ),
]
Manifest = Annotated[
    str,
    typer.Option(
        "--manifest",
        help="Start nothing: make the run, and write a Kubernetes Job with a pod for each worker, for `kubectl apply "
        "-f -`. Pods mount this PersistentVolumeClaim where --state-dir is here.",
        metavar="CLAIM",
    ),
]
Kubernetes = Annotated[
    str,
    typer.Option(
        "--kubernetes",
        help="Train in pods: give the Job that --manifest writes to the cluster that kubectl goes by. `headway train "
        "status`, `list`, `stop` and `resume` know it from then on.",
        metavar="CLAIM",
    ),
]
RunId = Annotated[str | None, typer.Argument(help="How the run's id begins. Default: the newest run.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave it to itself; `headway train status` shows it.")]


class _JobOrCommand(TyperGroup):
    """`headway train job.yaml` is `headway train run job.yaml`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else [_RUN, *args])


app = typer.Typer(
    cls=_JobOrCommand,
    no_args_is_help=True,
    help="Train a model by a plan; list, show, stop and resume runs. `headway train job.yaml` begins one.",
)


@app.command(_RUN)
def run(
    *,
    job: Annotated[Path, typer.Argument(help="A YAML file: model, data, batch, steps and more.", dir_okay=False)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show plan, lists, memory and an iteration; start nothing.")
    ] = False,
    detach: Detach = False,
    ray: RayAddress = "",
    manifest: Manifest = "",
    kubernetes: Kubernetes = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Of the Job, with --kubernetes. Default: kubectl's.", metavar="NAME")
    ] = "",
    image: Annotated[str, typer.Option("--image", help="Of the Job's pods.", metavar="IMAGE")] = _IMAGE,
    cores: Annotated[int, typer.Option("--cores", help="Of each of the Job's pods.", min=1)] = 1,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds after which to give up capturing, or measuring.", min=1)
    ] = 600.0,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Plan the training of a model, and train it on workers of this machine, of a Ray cluster or in pods.

    Ctrl-C ends it behind the step that it is in, with a checkpoint; a second one kills it.
    """
    _check_pods(manifest, kubernetes, namespace)
    given = read_training_job(job)
    if ray:
        given = replace(given, ray=ray)
    if given.ray:
        require_ray()
    claim = manifest or kubernetes
    if claim:
        check_shared(given, state_dir)
    prepared = asyncio.run(prepare_run(given, deadline_s=deadline_s, state_dir=state_dir))
    if dry_run:
        _show(prepared, as_json=as_json)
        return
    if not as_json and not manifest:
        _show(prepared, as_json=False)
    directory = new_run(prepared.run, state_dir)
    with ExitStack() as undone:
        undone.callback(rmtree, directory)  # a run without weights could neither begin nor be resumed
        asyncio.run(write_weights(prepared.run, directory / INITIAL_FILE, deadline_s=deadline_s))
        undone.pop_all()
    if not claim:
        with starting(directory.name, state_dir):
            _start(directory, given, detach=detach, as_json=as_json)
        return
    assert state_dir is not None, "it was checked"
    pods = PodOptions(claim=claim, image=image, cores=cores, user=os.getuid(), group=os.getgid())
    peak_bytes = max(prepared.certificate.peak_bytes)
    written = run_manifest(directory, given, peak_bytes=peak_bytes, state_dir=state_dir, pods=pods)
    if manifest:
        typer.echo(written, nl=False)
        return
    submit(directory, written, namespace=namespace)
    _tell_submitted(directory.name, as_json=as_json)


@app.command("list")
def list_(*, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List training runs, the newest first."""
    runs = list_runs(state_dir)
    if as_json:
        typer.echo(json.dumps([run_document(each) for each in runs], indent=2))
    else:
        Console().print(runs_table(runs), highlight=False)


@app.command()
def status(*, run_id: RunId = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show how far a run is."""
    found = find_run(run_id, state_dir)
    if as_json:
        typer.echo(json.dumps(run_document(found), indent=2))
        return
    typer.echo(f"{found.run_id}: {found.job.model}, {found.state}")
    for report in found.steps[-5:]:
        typer.echo(step_line(report, batch=found.job.batch, num_steps=found.job.steps))
    if found.error:
        typer.echo(f"! {found.error}")
    typer.echo(f"Kept in {found.directory}.")


@app.command()
def stop(*, run_id: RunId = None, state_dir: StateDir = None) -> None:
    """End a run behind the step that it is in, with a checkpoint."""
    found = find_run(run_id, state_dir)
    if found.state == "running" and found.pods is not None:
        end_pods(found.directory)
        typer.echo(f"{found.run_id} ends behind its step; `headway train resume {found.run_id}` goes on with it.")
        return
    if found.state != "running" or found.process is None:
        raise FailedPreconditionError(
            f"{found.run_id} is not running: {found.state}.", hint="See `headway train list`."
        )
    terminate(found.process)
    typer.echo(f"{found.run_id} ends behind its step; `headway train resume {found.run_id}` goes on with it.")


@app.command()
def resume(
    *,
    run_id: RunId = None,
    detach: Detach = False,
    ray: Annotated[
        str | None,
        typer.Option("--ray", help="Go on with it on another Ray cluster; '' for this machine.", metavar="ADDRESS"),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from its last checkpoint."""
    with starting(find_run(run_id, state_dir).run_id, state_dir) as found:
        if found.pods is not None and ray is None:
            submit_again(found.directory)
            _tell_submitted(found.run_id, as_json=as_json)
            return
        moved = found if ray is None else move_run(found, ray=ray)
        if moved.job.ray:
            require_ray()
        _start(moved.directory, moved.job, detach=detach, as_json=as_json)


@app.command()
def export(
    *,
    run_id: RunId = None,
    out: Annotated[Path, typer.Option("--out", help="The directory to make, in Hugging Face's format.")],
    state_dir: StateDir = None,
) -> None:
    """Write what a run has trained as a checkpoint directory that can be served: for models that began as one.

    Weights are those of the run's last checkpoint, all other files those of the directory that it began with.
    """
    found = find_run(run_id, state_dir)
    latest = found.directory / CHECKPOINTS_DIRECTORY / LATEST_FILE
    if not Path(found.job.model).is_dir():
        raise FailedPreconditionError(
            f"{found.run_id} did not begin with a checkpoint directory, but with {found.job.model}.",
            hint=f"Its checkpoints in {latest.parent} are safetensors files with the model's own names.",
            field="model",
        )
    if not latest.is_file():
        raise FailedPreconditionError(f"{found.run_id} has no checkpoint yet.", hint="See `headway train status`.")
    checkpoint = latest.parent / latest.read_text().strip()
    request = ExportRequest(checkpoint=str(checkpoint), model=found.job.model, out=str(out.resolve()))
    asyncio.run(_export(request))
    typer.echo(f"{found.run_id}: {checkpoint.name} is written to {out}.")


async def _export(request: ExportRequest) -> None:
    child = call_child("headway.profiler.capture.export", to_document(request), deadline_s=None)
    async with aclosing(child) as answers:
        async for _ in answers:
            pass


@app.command()
def trace(
    *,
    run_id: RunId = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a Chrome trace, which Perfetto opens.", dir_okay=False)
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw it: .svg, .png or .pdf.", dir_okay=False)
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Show one measured iteration of a run, and above it what was predicted."""
    found = read_trace(find_run(run_id, state_dir).directory)
    if out is not None:
        out.write_text(chrome_trace(found))
    if figure is not None:
        draw_trace(found, figure)
    for line in trace_lines(found):
        typer.echo(line)


def _check_pods(manifest: str, kubernetes: str, namespace: str) -> None:
    if manifest and kubernetes:
        raise InvalidArgumentError(
            "A Job is written or given to the cluster.", hint="Leave out --manifest.", field="manifest"
        )
    if namespace and not kubernetes:
        raise InvalidArgumentError(
            "--namespace is that of --kubernetes.", hint="Give that the claim that pods mount.", field="namespace"
        )


def _tell_submitted(run_id: str, *, as_json: bool) -> None:
    told = f"{run_id} is given to the cluster; `headway train status {run_id}` shows it."
    typer.echo(json.dumps({"run_id": run_id}) if as_json else told)


def _start(directory: Path, job: TrainingJob, *, detach: bool, as_json: bool) -> None:
    if detach:
        leave_run(directory)
        typer.echo(json.dumps({"run_id": directory.name}) if as_json else f"{directory.name} is started.")
        return
    asyncio.run(_follow(directory, job, as_json=as_json))
    if not as_json:
        typer.echo(f"{directory.name}: checkpoints are in {directory / 'checkpoints'}.")


async def _follow(directory: Path, job: TrainingJob, *, as_json: bool) -> None:
    console = Console()
    with ExitStack() as shown:
        live = None
        if console.is_terminal and not as_json:
            live, view = shown.enter_context(Live(console=console, auto_refresh=False)), LiveRun(job)
        async for news in follow_run(directory):
            if as_json:
                typer.echo(json.dumps(to_document(news)))
            elif news.restart:
                typer.echo(f"{news.restart} The run begins again at its last checkpoint.", err=True)
            elif news.step is not None and live is not None:
                view.add(news.step)
                live.update(view, refresh=True)
            elif news.step is not None:
                typer.echo(step_line(news.step, batch=job.batch, num_steps=job.steps))


def _show(prepared: PreparedRun, *, as_json: bool) -> None:
    if as_json:
        document = {
            "plan_id": prepared.plan.plan_id,
            "planned_s": prepared.plan.iteration_s,
            "priced_by": prepared.priced_by,
            "peak_bytes": list(prepared.certificate.peak_bytes),
            "execution": to_document(prepared.run.execution),
        }
        typer.echo(json.dumps(document, indent=1))
        return
    console = Console()
    console.print(training_view(prepared.plan), highlight=False)
    if prepared.priced_by:
        console.print(f"Planned by {prepared.priced_by}.", highlight=False)
    console.print(lists_table(prepared), highlight=False)
    for line in (*zero_lines(prepared), *unshared_lines(prepared)):
        console.print(line, highlight=False)
    for line in gantt_lines(prepared):
        typer.echo(line)
