"""The bill of materials of what is locked."""

from pathlib import Path

import pytest

from deploy.sbom import bill_of

ROOT = Path(__file__).resolve().parents[2]


def test_every_locked_package_is_listed_with_its_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    components = bill_of(lock)["components"]
    assert len(components) == lock.count("==") > 20
    assert sum(len(component["hashes"]) for component in components) == lock.count("--hash=")
    assert {"redis", "grpcio"} <= {component["name"] for component in components}


def test_a_package_without_a_hash_is_a_fault() -> None:
    with pytest.raises(ValueError, match="without a hash: loose"):
        bill_of("loose==1.0\n")
