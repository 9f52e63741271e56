"""Picks packages from requirements.lock, hashes and all: what an image needs of what developers have.

python deploy/images/packages.py [--without torch] [--build]

What the program needs is in pyproject.toml; what those packages need is in the "via" comments of the lock file.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD = ("grpcio-tools", "hatchling", "mypy-protobuf")
_NAME = re.compile(r"^([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a lock file: its lines, and who needs it."""

    name: str
    lines: tuple[str, ...]
    needed_by: frozenset[str]


def read_lock(text: str) -> list[Package]:
    """The packages of a file that `uv pip compile` has written."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _NAME.match(line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    return [_package(block) for block in blocks]


def own_dependencies(project: str) -> set[str]:
    """What the program itself needs, by pyproject.toml's text; developers' extras are not among it."""
    return {_name(requirement) for requirement in tomllib.loads(project)["project"]["dependencies"]}


def closure(packages: Sequence[Package], wanted: Collection[str], *, without: Collection[str] = ()) -> list[Package]:
    """The wanted packages and all that they need, but for what is left out and what only that needs."""
    chosen = set(wanted) - set(without)
    while more := {each.name for each in packages if each.name not in (*chosen, *without) and each.needed_by & chosen}:
        chosen |= more
    return [package for package in packages if package.name in chosen]


def _package(block: Sequence[str]) -> Package:
    comments = [line.strip("# ").removeprefix("via").strip() for line in block if line.lstrip().startswith("#")]
    lines = tuple(line for line in block if not line.lstrip().startswith("#"))
    return Package(_name(block[0]), lines, frozenset(comment.split(" ")[0] for comment in comments if comment))


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found is not None, requirement
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[], help="a package to leave out")
    parser.add_argument("--build", action="store_true", help="what builds it, instead of what it needs")
    arguments = parser.parse_args()
    wanted = _BUILD if arguments.build else own_dependencies((ROOT / "pyproject.toml").read_text())
    locked = read_lock((ROOT / "requirements.lock").read_text())
    for package in closure(locked, wanted, without=arguments.without):
        sys.stdout.writelines(f"{line}\n" for line in package.lines)


if __name__ == "__main__":
    main()
