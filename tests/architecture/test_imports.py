"""The import graph: services never import each other, pure rooms stay pure, torch stays in the worker."""

import ast
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("services", "workers", "kernels")

SERVICES = {"profiler", "planner", "router", "kvcache", "controller", "gateway"}
SHARED = {"checkpoint", "core", "rpc", "store", "observe", "v1"}
ALLOWED = {
    "__init__.py": {"cli", "train"},
    "core": set(),
    "checkpoint": {"core"},
    "observe": {"core"},
    "store": {"core"},
    "rpc": {"core", "observe", "store", "v1"},
    "client": {"core", "rpc", "v1"},
    "cli": {"checkpoint", "core", "fetch", "rpc", "store", "observe", "client", "v1"},
    "fetch": {"checkpoint", "core"},
    "engine": {"core"},
    "encoder": {"core"},
    "kernels": {"core"},
    "models": {"checkpoint", "core", "kernels"},
    "programs": {"core"},
    "train": {"checkpoint", "core", "observe", "profiler", "programs", "rpc"},
    "runner": {"backends", "checkpoint", "core", "encoder", "engine", "kernels", "models"},
    "backends": {"core", "kernels", "observe", "planner", "profiler", "programs"},
    "worker": {
        *("backends", "checkpoint", "core", "encoder", "engine", "observe", "programs", "rpc", "runner", "store", "v1"),
    },
} | dict.fromkeys(SERVICES, SHARED)

PURE = (
    *("core", "encoder", "engine", "router/policies"),
    *(f"planner/{room}" for room in ("backends", "certify", "placement", "schedule")),
)
IMPURE_MODULES = {"torch", "grpc", "redis", "logging", "socket", "asyncio", "subprocess", "google", "fastapi"}
TORCH_ROOMS = {"backends", "worker", "runner", "models", "kernels", "programs", "train"}
TORCH_PARTS = ("profiler/zoo/", "profiler/capture/", "checkpoint/tensors.py")
PROTOBUF_FILES = {"servicer.py", "__main__.py"}


def modules() -> list[tuple[str, Path]]:
    return [
        (path.relative_to(ROOT / root / "headway").as_posix(), path)
        for root in SOURCE_ROOTS
        for path in sorted((ROOT / root / "headway").rglob("*.py"))
    ]


@cache
def module_graph() -> dict[str, set[str]]:
    """Each module and the modules that it imports at any time, of the source roots, the benchmarks and deploy/."""
    paths = {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
        for base, room in (*((ROOT / root, "headway") for root in SOURCE_ROOTS), (ROOT, "benchmarks"), (ROOT, "deploy"))
        for path in (base / room).rglob("*.py")
    }
    return {module: modules_imported_by(path, paths.keys()) - {module} for module, path in paths.items()}


def modules_imported_by(path: Path, known: Collection[str]) -> set[str]:
    """Of `from a import b` the module a.b where there is one, else a."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = (f"{node.module}.{alias.name}" for alias in node.names)
            names.update(member if member in known else node.module for member in members)
    return names.intersection(known)


@cache
def imports_of(path: Path) -> set[str]:
    """Dotted names of all imports, also those inside functions; a `from a import b` gives 'a' and 'a.b'."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_a_room_imports_only_the_rooms_below_it() -> None:
    reached = set()
    for name, path in modules():
        room = name.split("/", maxsplit=1)[0]
        rooms = {imported.split(".")[1] for imported in imports_of(path) if imported.startswith("headway.")}
        reached |= {(name, each) for each in rooms - ALLOWED[room] - {room}}
    assert reached == set(), "these reach into rooms that they may not import"


def test_torch_stays_in_the_worker() -> None:
    loading = [name for name, path in modules() if "torch" in {each.split(".")[0] for each in imports_of(path)}]
    rooms = {name: name.split("/", maxsplit=1)[0] for name in loading}
    assert [name for name in loading if rooms[name] not in TORCH_ROOMS and not name.startswith(TORCH_PARTS)] == []


def test_pure_rooms_do_no_io() -> None:
    for name, path in modules():
        if name.startswith(PURE):
            top_level = {imported.split(".")[0] for imported in imports_of(path)}
            assert top_level & IMPURE_MODULES == set(), name


def test_the_certifier_shares_no_code_with_the_searches() -> None:
    for path in (ROOT / "services/headway/planner/certify").rglob("*.py"):
        planning = {imported for imported in imports_of(path) if imported.startswith("headway.planner.")}
        assert [each for each in planning if not each.startswith("headway.planner.certify")] == [], path.name


def test_backends_reach_the_search_and_the_capture_only_where_modules_are_compiled() -> None:
    room = ROOT / "workers/headway/backends"
    reached = {
        (path.name, imported)
        for path in room.rglob("*.py")
        for imported in imports_of(path)
        if imported.startswith(("headway.planner", "headway.profiler"))
    }
    assert {name for name, _ in reached} == {"compile.py"}
    allowed = ("headway.planner.backends", "headway.profiler.capture")
    assert [imported for _, imported in reached if not imported.startswith(allowed)] == []


def test_ranks_reach_the_capture_only_where_a_users_module_is_taken() -> None:
    room = ROOT / "workers/headway/train"
    reached = {
        (path.name, imported)
        for path in room.rglob("*.py")
        for imported in imports_of(path)
        if imported.startswith("headway.profiler")
    }
    assert {name for name, _ in reached} == {"parallel.py"}
    assert [imported for _, imported in reached if not imported.startswith("headway.profiler.capture")] == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(module_graph()).prepare()
    except CycleError as error:
        pytest.fail(f"These import each other: {' <- '.join(error.args[1])}")


def test_what_is_deployed_does_not_need_the_benchmarks() -> None:
    graph = module_graph()
    deployed = [module for module in graph if module.startswith("deploy.")]
    assert [(module, each) for module in deployed for each in graph[module] if each.startswith("benchmarks")] == []


def test_one_tree_has_the_file_that_says_what_is_public_and_finds_the_others() -> None:
    assert [root for root in SOURCE_ROOTS if (ROOT / root / "headway" / "__init__.py").exists()] == ["workers"]


def test_what_is_public_is_loaded_when_it_is_asked_for() -> None:
    script = """
import sys, headway
assert {"ParallelModule", "parallelize", "read_plan"} <= set(dir(headway))
assert not {"torch", "numpy", "headway.train", "headway.cli"} & sys.modules.keys()
assert headway.read_plan.__module__ == "headway.cli.plan_file"
assert "torch" not in sys.modules
try:
    headway.paralelize
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert (
        done.stdout == "module 'headway' has no attribute 'paralelize'; it has ParallelModule, parallelize, read_plan\n"
    )
