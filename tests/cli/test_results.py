"""Results of searches, as `headway plan jobs show` shows them."""

from pathlib import Path

from rich.console import Console

from headway.cli.search.results import VIEW_BY_KIND, result_view
from headway.core.plan.document import to_plan_document
from headway.planner.jobs.kinds import MODULE_BY_KIND
from tests.core.plans import TRAINING


def test_every_kind_of_search_has_a_view() -> None:
    assert set(VIEW_BY_KIND) == set(MODULE_BY_KIND)


def test_a_training_plan_is_shown(tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    console.print(result_view("training", to_plan_document(TRAINING), state_dir=tmp_path))
    assert TRAINING.plan_id in console.export_text()
