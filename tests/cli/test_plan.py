import json

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
