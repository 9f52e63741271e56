"""A comparison of two real processes, and what it prints and writes."""

import asyncio
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.limit import Limit
from benchmarks.serve.__main__ import app
from benchmarks.serve.comparison import compare, record_document
from benchmarks.serve.options import parse_environment, parse_loads, parse_rates
from benchmarks.serve.peers import PEERS, Deployment
from benchmarks.serve.report import FIGURES as REPORTED
from benchmarks.serve.report import comparison_tables, ratio, write_result
from benchmarks.serve.scenario import Load, scenarios
from benchmarks.serve.server import Server, ServerError
from tests.benchmarks.conftest import MakeServer

LOADS = scenarios(rates=[40.0], burst=3, seconds=0.4, output_sigma=0.0)
LIMIT = Limit(flops=1e12, products_s=5.0, output_tokens_per_s=1e6)


async def test_servers_take_turns_and_every_figure_is_reported(make_server: MakeServer, tmp_path: Path) -> None:
    lines: list[str] = []
    servers = [make_server("ours"), make_server("theirs")]
    server_records = await compare(servers, LOADS, repeats=2, progress=lines.append)

    turns = [line.partition(":")[0] for line in lines if "run " in line]
    assert turns == ["ours", "theirs"] * 4
    assert all(len(runs) == 2 for server_record in server_records for runs in server_record.runs.values())
    assert all(server_record.peak_pss_bytes > 0 and not server_record.failures for server_record in server_records)

    console = Console(record=True, width=120)
    for table in comparison_tables(server_records, LOADS, {LOADS[0]: LIMIT}):
        console.print(table)
    text = console.export_text()
    for figure in REPORTED:
        assert figure.title in text
    assert "memory (sum of PSS)" in text
    assert "limit 1,000,000 tokens/s (1.00 TFLOP of products at 200 GFLOP/s)" in " ".join(text.split())
    assert "target 1.25x" in text

    servers_record = {server_record.name: record_document(server_record) for server_record in server_records}
    document = json.loads(write_result(tmp_path / "result.json", {"servers": servers_record}).read_text())
    assert document["servers"]["ours"]["scenarios"][0]["title"] == "burst, 3 requests"
    assert document["machine"]["num_cpus"] >= 1


async def test_a_server_that_does_not_start_ends_the_comparison_and_the_others(make_server: MakeServer) -> None:
    servers: list[Server] = [make_server("ours"), make_server("theirs", command="exit 1")]
    with pytest.raises(ServerError, match="theirs ended with code 1"):
        await compare(servers, LOADS, repeats=1, progress=lambda _: None)
    assert servers[0].pss_bytes() == 0


def test_repeats_and_rates_never_share_prompts() -> None:
    loads = scenarios(list(Load), rates=[1, 2, 4, 8], burst=64, seconds=20, output_sigma=0.0)
    seeds = [load.spec(repeat).seed for load in loads for repeat in range(10)]
    assert len(set(seeds)) == len(seeds)


def test_ratio_is_green_on_the_better_side() -> None:
    throughput, latency = REPORTED[0], REPORTED[2]
    assert ratio(throughput, [3.0, 2.0]) == "[green]1.50x[/]"
    assert ratio(latency, [3.0, 2.0]) == "[red]1.50x[/]"
    assert ratio(latency, [None, 2.0]) == ""
    assert ratio(latency, [3.0, 0.0]) == ""


def test_loads_are_named_and_each_has_its_shape() -> None:
    loads = parse_loads("prefix,samples")
    prefix, samples = (load.spec(0) for load in scenarios(loads, rates=[], burst=64, seconds=20, output_sigma=0.0))
    assert (prefix.num_requests, prefix.shared_prefix_tokens, prefix.n) == (32, 512, 1)
    assert (samples.num_requests, samples.shared_prefix_tokens, samples.n) == (16, 0, 4)
    with pytest.raises(typer.BadParameter, match="burst, prefix, samples, rates"):
        parse_loads("burst,all")


@pytest.mark.parametrize("name", sorted(PEERS))
def test_every_recipe_serves_the_model_on_its_port(name: str, tmp_path: Path) -> None:
    deployment = Deployment(
        model_name="m",
        model_dir=Path("/models/m"),
        port=4711,
        state_dir=tmp_path,
        extra_args=("--more",),
        extra_env={"HF_HUB_OFFLINE": "0"},
    )
    launch = PEERS[name](deployment)
    assert any("/models/m" in argument for argument in launch.command)
    assert launch.command[-1] == "--more"
    assert "4711" in launch.command
    assert launch.env["HF_HUB_OFFLINE"] == "0"


async def test_run_command_prints_and_writes_its_figures(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = make_server()
    await server.start()
    try:
        options = ["run", "--model", "m", "--requests", "5", "--burst", "--url", server.url, "--name", "x"]
        result = await asyncio.to_thread(CliRunner().invoke, app, options)
    finally:
        await server.stop()
    assert result.exit_code == 0, result.output
    assert "output tokens/s" in result.output
    document = json.loads((tmp_path / "benchmarks/results/x.json").read_text())
    assert document["summary"]["num_failures"] == 0
    assert len(document["requests"]) == 5


def test_run_command_needs_a_rate_or_a_burst() -> None:
    result = CliRunner().invoke(app, ["run", "--model", "m"])
    assert result.exit_code == 2
    assert "--burst or --rate" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["run", "--model", "m", "--burst", "--url", "localhost:8000"], "is not an http:// URL"),
        (["compare", "--peer-python", "python", "--peer", "nobody"], "--peer is one of"),
    ],
)
def test_wrong_options_are_explained(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert message in result.output


def test_rates_are_positive_numbers() -> None:
    assert parse_rates("1,2.5") == [1.0, 2.5]
    assert parse_rates("") == []
    for text in ("1,x", "-1", "0"):
        with pytest.raises(typer.BadParameter, match="positive numbers"):
            parse_rates(text)


def test_environment_entries_have_a_key_and_a_value() -> None:
    assert parse_environment(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    for entry in ("A", "=1"):
        with pytest.raises(typer.BadParameter, match="KEY=VALUE"):
            parse_environment([entry])
