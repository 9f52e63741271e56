"""What the documents name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    named = set(re.findall(r"\btests/[\w/]+\.py", document.read_text()))
    assert {path for path in named if not (ROOT / path).exists()} == set()
