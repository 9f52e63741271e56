import json
from pathlib import Path

import yaml

from tests.cli.conftest import Run


def test_the_plan_is_shown_for_people_and_for_machines(headway: Run, endpoint: str) -> None:
    shown = headway("plan", "show", "--endpoint", endpoint).stdout
    assert "tiny" in shown
    assert "1024 blocks of 16 tokens" in shown
    as_json = json.loads(headway("plan", "show", "--json", "--endpoint", endpoint).stdout)
    as_yaml = yaml.safe_load(headway("plan", "show", "--yaml", "--endpoint", endpoint).stdout)
    assert as_json == as_yaml
    assert as_json["assignments"][0]["num_blocks"] == 1024


def test_a_stored_serving_plan_is_shown_and_explained_without_a_stack(
    headway: Run, endpoint: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(headway("plan", "show", "--json", "--endpoint", endpoint).stdout)
    assert json.loads(file.read_text())["kind"] == "serving"
    shown = headway("plan", "show", str(file))
    assert shown.stdout == headway("plan", "show", "--endpoint", endpoint).stdout, shown.stderr
    explained = headway("plan", "explain", str(file))
    assert "tiny" in explained.stdout, explained.stderr
    refused = headway("plan", "explain", str(file), "--instead", "groups=1x1")
    assert refused.returncode == 1
    assert "no file of a placement" in refused.stderr
