"""Writes the software bill of materials of the locked packages, as a CycloneDX 1.5 document.

Usage: python -m deploy.sbom requirements.lock > sbom.json
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill_of(lock: str) -> dict[str, Any]:
    """The document for a lock file with hashes, as `make lock` writes it; ValueError for a package without any."""
    components: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if package := _PACKAGE.match(line):
            name, version = package.groups()
            purl = f"pkg:pypi/{name.lower()}@{version}"
            components.append({"type": "library", "name": name, "version": version, "purl": purl, "hashes": []})
        elif found := _HASH.search(line):
            components[-1]["hashes"].append({"alg": "SHA-256", "content": found[1]})
    if unpinned := [component["name"] for component in components if not component["hashes"]]:
        raise ValueError(f"without a hash: {', '.join(unpinned)}")
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


if __name__ == "__main__":
    print(json.dumps(bill_of(Path(sys.argv[1]).read_text()), indent=1))
