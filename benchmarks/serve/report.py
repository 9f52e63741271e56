"""Results for people (a table) and for machines (a JSON file)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.limit import Limit
from benchmarks.machine import describe_machine
from benchmarks.serve.comparison import ServerRecord
from benchmarks.serve.scenario import Scenario
from headway.core.units import format_bytes, format_duration

RESULTS_DIR = Path("benchmarks/results")
MISSING = "-"
MIN_BURST_RATIO = 1.25
MIN_LIMIT_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a table: which figure, what to call it, how to write it, and whether more of it is better."""

    name: str
    title: str
    write: Callable[[float], str]
    more_is_better: bool = False


def write_number(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def write_share(value: float) -> str:
    return f"{100 * value:.1f} %"


FIGURES = (
    Figure("output_tokens_per_s", "output tokens/s", write_number, more_is_better=True),
    Figure("requests_per_s", "requests/s", write_number, more_is_better=True),
    Figure("ttft_s.p50", "TTFT p50", format_duration),
    Figure("ttft_s.p99", "TTFT p99", format_duration),
    Figure("tpot_s.p50", "TPOT p50", format_duration),
    Figure("tpot_s.p99", "TPOT p99", format_duration),
    Figure("inter_token_s.p50", "inter-token p50", format_duration),
    Figure("inter_token_s.p99", "inter-token p99", format_duration),
    Figure("normalised_latency_s.p50", "normalised latency p50", format_duration),
    Figure("normalised_latency_s.p99", "normalised latency p99", format_duration),
    Figure("num_failures", "failures", write_number),
)
CLIENT_FIGURES = (
    Figure("tokens_per_event", "tokens per event", write_number),
    Figure("client_cpu_share", "client CPU (of one core)", write_share),
    Figure("max_lag_s", "client's latest send", format_duration),
)
SERVER_FIGURES = (
    Figure("start.first_token_s", "start to first token", format_duration),
    Figure("start.ready_s", "start to ready", format_duration),
    Figure("peak_pss_bytes", "memory (sum of PSS)", format_bytes),
    Figure("idle_cpu_share", "idle CPU (of one core)", write_share),
)


def run_table(title: str, figures: Mapping[str, float | None]) -> Table:
    """One server, one workload."""
    table = Table("figure", title=title)
    table.add_column("value", justify="right")
    for figure in FIGURES + CLIENT_FIGURES:
        table.add_row(figure.title, written(figure, figures.get(figure.name)))
    return table


def comparison_tables(
    server_records: Sequence[ServerRecord], scenarios: Sequence[Scenario], limits: Mapping[Scenario, Limit]
) -> list[Table]:
    """Each scenario's figures side by side, then what the servers cost at rest."""
    names = [server_record.name for server_record in server_records]
    tables = []
    for scenario in scenarios:
        columns = [server_record.figures(scenario) for server_record in server_records]
        table = side_by_side(scenario.title, names, FIGURES + CLIENT_FIGURES, columns)
        if scenario in limits:
            reached = {name: column["output_tokens_per_s"] or 0.0 for name, column in zip(names, columns, strict=True)}
            table.caption = "\n".join((target_line(list(reached.values())), limit_line(limits[scenario], reached)))
        tables.append(table)
    costs = [server_figures(server_record) for server_record in server_records]
    return [*tables, side_by_side("the server itself", names, SERVER_FIGURES, costs)]


def side_by_side(
    title: str,
    names: Sequence[str],
    figures: Sequence[Figure],
    columns: Sequence[Mapping[str, float | None]],
) -> Table:
    """One column a server; the last tells the first server's figure as a multiple of the second's."""
    table = Table("figure", title=title)
    for heading in (*names, "ratio"):
        table.add_column(heading, justify="right")
    for figure in figures:
        values = [column.get(figure.name) for column in columns]
        table.add_row(figure.title, *(written(figure, value) for value in values), ratio(figure, values))
    return table


def target_line(tokens_per_s: Sequence[float]) -> str:
    """How far a burst is from what is asked of it; empty without a peer."""
    if len(tokens_per_s) != 2 or not tokens_per_s[1]:
        return ""
    quotient = tokens_per_s[0] / tokens_per_s[1]
    verdict = "[green]met[/]" if quotient >= MIN_BURST_RATIO else "[red]missed[/]"
    return f"output tokens/s {quotient:.2f}x, target {MIN_BURST_RATIO}x: {verdict}"


def limit_line(limit: Limit, reached: Mapping[str, float]) -> str:
    """The physical limit, and how much of it each server reaches."""
    shares = ", ".join(f"{name} {100 * rate / limit.output_tokens_per_s:.0f} %" for name, rate in reached.items())
    return (
        f"limit {limit.output_tokens_per_s:,.0f} tokens/s ({limit.flops / 1e12:.2f} TFLOP of products at "
        f"{limit.flops_per_s / 1e9:.0f} GFLOP/s); reached: {shares}; aim {100 * MIN_LIMIT_SHARE:.0f} %"
    )


def ratio(figure: Figure, values: Sequence[float | None]) -> str:
    """`1.25x` with the colour of the better side; empty unless there are two figures to divide."""
    if figure in CLIENT_FIGURES or len(values) != 2 or values[0] is None or not values[1]:
        return ""
    quotient = values[0] / values[1]
    is_better = quotient >= 1 if figure.more_is_better else quotient <= 1
    return f"[{'green' if is_better else 'red'}]{quotient:.2f}x[/]"


def written(figure: Figure, value: float | None) -> str:
    return MISSING if value is None else figure.write(value)


def server_figures(server_record: ServerRecord) -> dict[str, float | None]:
    """What a server takes whatever the load."""
    return {
        "start.first_token_s": server_record.start.first_token_s if server_record.start else None,
        "start.ready_s": server_record.start.ready_s if server_record.start else None,
        "peak_pss_bytes": server_record.peak_pss_bytes,
        "idle_cpu_share": server_record.idle_cpu_share,
    }


def write_result(path: Path, document: Mapping[str, Any]) -> Path:
    """Write the result with the machine it was measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": asdict(describe_machine()), **document}, indent=1)
    path.write_text(text + "\n")
    return path
