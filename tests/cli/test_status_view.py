"""The state of a stack as people see it, in terminals of any width."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headway.cli.running import cluster_status
from headway.cli.status_view import status_view
from headway.client.status import ClusterStatus, ModelAttainment, ProcessStatus

LONG = "Qwen3-Coder-480B-A35B-Instruct-with-a-name-that-goes-on-and-on-beyond-every-terminal-of-eighty-columns-FP8"
HEADERS = (
    *("model", "task", "replicas", "layout", "longest", "objective", "attained", "predicted", "completed", "rejected"),
    *("worker", "group", "state", "running", "waiting", "KV in use", "TPOT (to plan)", "hardware"),
    *("process", "pid", "gRPC", "metrics", "up for", "restarts"),
)


def named(status: ClusterStatus, name: str) -> ClusterStatus:
    """With its model under another name, and a busy router."""
    controller, plan, fleet = status.controller, status.plan, status.fleet
    assert plan is not None
    endpoint = "127.0.0.1:40123"
    router = ProcessStatus(
        name="router", kind="router", pid=4_123_456, state="ready", endpoint=endpoint, metrics_endpoint=endpoint
    )
    workers = tuple(replace(worker, model=name, models=(name, "tiny")) for worker in controller.workers)
    return replace(
        status,
        controller=replace(controller, workers=workers, processes=(router,)),
        plan=replace(
            plan,
            models=tuple(replace(model, name=name) for model in plan.models),
            assignments=tuple(replace(each, model=name) for each in plan.assignments),
        ),
        fleet=replace(
            fleet,
            groups=tuple(replace(group, model=name) for group in fleet.groups),
            attainments=(ModelAttainment(model=name, num_met=123_456, num_missed=7, num_completed=1_234_567),),
        ),
    )


def render(status: ClusterStatus, *, width: int) -> str:
    file = io.StringIO()
    Console(width=width, file=file).print(status_view(status, now_s=0.0))
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", ["tiny", "Meta-Llama-3.1-70B-Instruct", LONG])
def test_nothing_is_cut_off_in_a_narrow_terminal(endpoint: str, name: str, width: int) -> None:
    status = cluster_status(endpoint, api_key=None, state_dir=None)
    text = render(named(status, name), width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = set(render(named(status, "tiny"), width=400).split()) - {"tiny"}
    assert words >= {word for header in HEADERS for word in header.split()}
    missing = [word for word in words if "─" not in word and word not in text]
    assert not missing, text
    letters = "".join(text.split())
    assert name in letters if len(name) < width // 2 else name[: width // 4] in text


def test_a_wide_terminal_has_one_table_of_each(endpoint: str) -> None:
    text = render(named(cluster_status(endpoint, api_key=None, state_dir=None), "tiny"), width=200)
    assert [text.count(header) for header in ("replicas", "KV in use", "restarts")] == [1, 1, 1]
    assert text.count("worker-0") == 1


def test_what_requests_do_not_feel_is_told_under_the_headline(endpoint: str) -> None:
    status = cluster_status(endpoint, api_key=None, state_dir=None)
    fault = "Redis takes no writes."
    told = render(replace(status, controller=replace(status.controller, faults=(fault,))), width=100).splitlines()
    assert told[0].startswith("ready")
    assert told[1].strip() == fault
