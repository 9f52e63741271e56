"""The wire protocol: a change that breaks clients fails here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "protocol.binpb"
BUF = Path(sys.executable).parent / "buf"


def test_protocol_does_not_break_against_the_golden_descriptors() -> None:
    """After a compatible addition refresh the file: .venv/bin/buf build proto -o tests/architecture/protocol.binpb"""
    result = subprocess.run(
        [BUF, "breaking", "proto", "--against", str(GOLDEN)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_removed_field_is_noticed(tmp_path: Path) -> None:
    copy = tmp_path / "proto" / "headway" / "v1"
    copy.mkdir(parents=True)
    (tmp_path / "proto" / "buf.yaml").write_text((ROOT / "proto" / "buf.yaml").read_text())
    for path in (ROOT / "proto" / "headway" / "v1").glob("*.proto"):
        text = path.read_text().replace("  string lease_id = 1;\n", "")
        (copy / path.name).write_text(text)
    result = subprocess.run(
        [BUF, "breaking", "proto", "--against", str(GOLDEN)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "lease_id" in result.stdout
