"""The dashboards' queries and the rules, against a real Prometheus that scrapes a running stack."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.panel import Panel
from headway.observe import metrics
from headway.store.schema import SPOILT
from tests.integration.conftest import OPTIONS
from tests.integration.stack import RunningStack, wait_for
from tests.prometheus import Prometheus, prometheus

ROOT = Path(__file__).resolve().parents[2]
PANELS = [(dashboard.uid, panel) for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
OF_THE_STACK = [(uid, panel) for uid, panel in PANELS if uid != "headway-training"]  # tests/train has that one's
# What a stack of one worker that nothing goes wrong with has no figures of.
QUIET = {"Preemptions", "Collectives", "Moved KV blocks", "Streams that went on elsewhere", "Requests without a place"}


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[Prometheus]:
    """A Prometheus with the shipped rules, that has scraped a stack which answers requests."""
    stack = RunningStack(tmp_path_factory.mktemp("stack"), {"tiny": checkpoint}, *OPTIONS).start()
    config = (ROOT / "deploy/prometheus/prometheus.yml").read_text().replace("http://127.0.0.1:8000", stack.url)
    config = re.sub(r"_interval: 5s", "_interval: 1s", config)
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text()
    try:
        with prometheus(tmp_path_factory.mktemp("prometheus"), config=config, rules=rules) as running:
            wait_for(lambda: _is_scraping(running, stack), timeout_s=60)
            for slo_ms in ("60000", "60000", "0.001"):
                _ask(stack, slo_ms)
            wait_for(lambda: _is_shown(running, stack), timeout_s=60, every_s=0.5)
            yield running
    finally:
        stack.stop()


def _is_scraping(running: Prometheus, stack: RunningStack) -> bool:
    targets = running.targets()
    listed = httpx.get(f"{stack.url}/metrics/targets").json()
    return len(targets) == len(listed) > 0 and all(target["health"] == "up" for target in targets)


def _is_shown(running: Prometheus, stack: RunningStack) -> bool:
    """Rates want a counter to rise from one scrape to another, so requests go on until all is there: a scrape may come
    between two of them, and see but one of the counters rise."""
    _ask(stack, "60000")
    _ask(stack, "0.001")
    names = ("headway_slo_attainment", "headway_slo_predicted")
    return all(running.query(f"model:{name}:ratio_rate5m > 0 < 1") for name in names)


def _ask(stack: RunningStack, slo_ms: str) -> None:
    body = {"model": "tiny", "prompt": "one two three four", "max_tokens": 4, "ignore_eos": True}
    httpx.post(f"{stack.url}/v1/completions", json=body, headers={"x-headway-slo-ttft-ms": slo_ms}, timeout=60)


@pytest.mark.parametrize(("uid", "panel"), OF_THE_STACK, ids=[f"{uid}/{panel.title}" for uid, panel in OF_THE_STACK])
def test_every_panel_shows_something(scraping: Prometheus, uid: str, panel: Panel) -> None:
    for query in panel.queries:
        expr = query.expr.replace("$model", ".*").replace("$__rate_interval", "1m")
        found = scraping.query(expr)
        if panel.title not in QUIET and "restarts" not in query.legend:
            assert found, f"{uid}, {panel.title}: nothing comes of {expr}"
            labels = set(re.findall(r"{{(\w+)}}", query.legend))
            assert labels <= set(found[0]["metric"]), f"{uid}, {panel.title}: labels of its legend are missing"


def test_metrics_keep_the_labels_that_queries_name(scraping: Prometheus) -> None:
    assert scraping.renamed_labels() == []


def test_attainment_counts_what_was_refused(scraping: Prometheus) -> None:
    """Of the requests that were sent last every other one had an objective that nobody could keep. How many of the
    others kept theirs is the machine's business: both rates only have to have counted the refused ones."""
    [measured] = scraping.query("model:headway_slo_attainment:ratio_rate5m")
    [predicted] = scraping.query("model:headway_slo_predicted:ratio_rate5m")
    assert 0.2 < float(measured["value"][1]) < 0.8
    assert 0.2 < float(predicted["value"][1]) < 0.8


def test_rules_are_accepted(scraping: Prometheus) -> None:
    rules = scraping.rules()
    written = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    assert len(rules) == sum(len(group["rules"]) for group in written["groups"])
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_queries_name_metrics_that_exist() -> None:
    for _, panel in PANELS:
        for query in panel.queries:
            assert _unknown(query.expr) == set(), panel.title


def test_rules_and_docs_name_metrics_that_exist() -> None:
    for path in (ROOT / "deploy/prometheus/rules.yml", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        assert _unknown(path.read_text()) - {SPOILT.pattern} == set(), path.name


def _unknown(text: str) -> set[str]:
    """Names that begin as metrics do, and that no process exports."""
    exported = {metric._name for metric in vars(metrics).values() if hasattr(metric, "_name")}
    named = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in re.findall(r"headway:([a-z]\w+)", text)}
    return {name for name in named if f"headway:{name}" not in exported}


def test_the_written_dashboards_are_the_defined_ones() -> None:
    for dashboard in DASHBOARDS:
        written = json.loads((ROOT / f"deploy/grafana/json/{dashboard.uid}.json").read_text())
        assert written == dashboard.document(), "run `make dashboards`"
