"""Shows a placement plan."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.line import QueuePolicy
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PlacementAlternative, PlacementPlan, Predictions
from headway.core.slo import Slo
from headway.core.units import format_bytes, format_duration

_MOST_MODELS = 40


def placement_view(plan: PlacementPlan) -> RenderableType:
    """Shows groups and their models, predictions, and the alternatives with what speaks against them."""
    return Group(
        Text(f"plan {plan.plan_id}", style="bold"),
        Text(_resting_on(plan)),
        *(Text(f"! {finding}", style="yellow") for finding in plan.findings),
        _groups(plan),
        *_spans(plan.problem, plan.placement),
        Text.assemble(("expected attainment ", "bold"), _attainment(plan.predictions)),
        _models(plan),
        *_alternatives(plan.alternatives),
    )


def alternative_view(plan: PlacementPlan, tried: PlacementAlternative) -> RenderableType:
    """Shows an alternative beside the plan."""
    table = Table("", "searched", "held out", "groups", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_row("the plan", *_percentages(plan.predictions), plan.placement.shapes)
    placement = tried.placement or Placement(groups=())
    table.add_row(tried.name, *_percentages(tried.predictions), placement.shapes)
    rows = [
        f"  group {number}: {group.shape}: {', '.join(group.models) or '-'}"
        for number, group in enumerate(placement.groups)
    ]
    spans = _spans(plan.problem, placement)
    return Group(table, *map(Text, rows), *spans, *(Text(f"- {reason}") for reason in tried.why_not))


def _resting_on(plan: PlacementPlan) -> str:
    problem, origins = plan.problem, {str(profile.provenance) for profile in plan.problem.profiles}
    devices = " and ".join(
        f"{each.num_devices} x {each.device} with {format_bytes(each.memory_bytes)} for models each"
        for each in problem.clusters
    )
    first = "" if problem.queue_policy is QueuePolicy.FCFS else ", least slack first"
    ended = "" if plan.is_complete else ", ended before it was done"
    return (
        f"{len(problem.models)} models on {devices}; {problem.workload.spec}, "
        f"{' and '.join(sorted(origins))} profiles{first}; searched for {format_duration(plan.search_s)}{ended}"
    )


def _groups(plan: PlacementPlan) -> Table:
    table = Table("bucket", "group", "stages x devices", "busy", "models", box=box.SIMPLE_HEAD, pad_edge=False)
    bucket_of = {group: number for number, bucket in enumerate(plan.buckets) for group in bucket.groups}
    for number, group in enumerate(plan.placement.groups):
        table.add_row(
            str(bucket_of.get(number, "-")),
            str(number),
            str(group.shape),
            f"{plan.predictions.held_out.utilisation[number]:.0%}",
            ", ".join(group.models) or "-",
        )
    return table


def _spans(problem: PlacementProblem, placement: Placement) -> Iterator[Text]:
    """Says which groups span nodes, and what that costs."""
    for number, group in enumerate(placement.groups):
        parts, link = problem.span_of(group.shape), problem.cluster_of(group.shape).across_nodes
        if len(parts) > 1 and link is not None:
            crossing = [
                f"{model.name} {format_duration(problem.crossing_s(model, group.shape))}"
                for model in problem.models
                if model.name in group.models and not model.generates
            ]
            yield Text(
                f"group {number} spans {len(parts)} nodes ({' + '.join(map(str, parts))} devices); {link.name} adds to "
                f"a pass at most: {', '.join(crossing) or '-'}"
            )


def _models(plan: PlacementPlan) -> Table:
    """Tables the models, those with the lowest attainment first."""
    searched = {each.model: each.attainment for each in plan.predictions.searched.models}
    slos = {model.name: slo_text(plan.problem.slo(model)) for model in plan.problem.models}
    table = Table("model", "SLO", "requests", "searched", "held out", box=box.SIMPLE_HEAD, pad_edge=False)
    worst = sorted(plan.predictions.held_out.models, key=lambda each: each.attainment)
    for each in worst[:_MOST_MODELS]:
        row = (each.model, slos[each.model], str(each.num_requests))
        before = f"{searched[each.model]:.2%}" if each.model in searched else "-"
        table.add_row(*row, before, f"{each.attainment:.2%}")
    if len(worst) > _MOST_MODELS:
        table.caption = f"and {len(worst) - _MOST_MODELS} more that are served no worse"
    return table


def slo_text(slo: Slo) -> str:
    """Writes an objective: 'TTFT 200 ms, TPOT 20 ms', or '500 ms' of a whole answer."""
    bounds = (("TTFT ", slo.ttft_s), ("TPOT ", slo.tpot_s), ("", slo.e2e_s))
    return ", ".join(f"{name}{format_duration(bound_s)}" for name, bound_s in bounds if bound_s is not None) or "-"


def _alternatives(alternatives: Iterable[PlacementAlternative]) -> Iterator[RenderableType]:
    for each in alternatives:
        shapes = each.placement.shapes if each.placement is not None else "another placement in each window"
        yield Text.assemble(("instead ", "cyan"), each.name, ": ", _attainment(each.predictions), f"; {shapes}")
        yield from (Text(f"  - {reason}") for reason in each.why_not)


def _attainment(predictions: Predictions) -> str:
    searched, held_out = _percentages(predictions)
    latency_s = predictions.held_out.mean_latency_s
    mean = f"; {format_duration(latency_s)} on average" if latency_s is not None else ""
    return f"{held_out} on requests that were held out, {searched} on those that were searched{mean}"


def _percentages(predictions: Predictions) -> tuple[str, str]:
    return f"{predictions.searched.attainment:.2%}", f"{predictions.held_out.attainment:.2%}"
