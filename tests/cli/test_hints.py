"""What messages tell a user to type is there: every command, and every flag on the command that has it."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headway.cli.app import COMMANDS
from headway.controller.config import ControllerConfig
from headway.rpc.config import ProcessConfig

ROOT = Path(__file__).resolve().parents[2]
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# A command with all that is said of it, up to the end of the quotation or of the text.
_COMMAND = re.compile(r"(?<![\w/.-])(headway|ray|kubectl)((?: [a-z]+)+)([^`]*)")

# Whose messages a room's are, where they name no command. The first that fits counts; "" are all commands.
# In examples of what --engine-args takes.
_VLLMS = {
    *("--enforce-eager", "--enable-lora", "--max-loras", "--max-lora-rank"),
    *("--enable-scale-out", "--disable-log-stats", "--kv-events-config"),
}
_FOREIGN = ("services/headway/core/exports/",)  # they write other tools' flags, whose own parsers test them
_AUDIENCES = (
    ("services/headway/cli/placement/", ("plan", "apply")),
    ("services/headway/cli/training/", ("plan",)),
    *((f"services/headway/cli/{name}", (name,)) for name in COMMANDS),
    ("services/headway/cli/", ("",)),
    ("services/headway/planner/serving/", ("up",)),
    ("services/headway/planner/", ("plan", "profile")),
    ("services/headway/profiler/", ("profile",)),
    ("workers/headway/worker/calibration/", ("profile",)),
    ("services/headway/client/", ("",)),
    ("services/headway/controller/config.py", ("headway-controller",)),
    ("services/headway/controller/__main__.py", ("headway-controller", "up")),
    ("services/headway/rpc/interceptors.py", ("",)),  # what a caller is told who has no token
    ("services/headway/rpc/ray_cluster.py", ("plan", "train")),
    ("services/headway/rpc/", ("process",)),
    ("", ("up",)),
)


@dataclass(frozen=True, slots=True)
class Message:
    path: str
    line: int
    text: str

    @property
    def audience(self) -> tuple[str, ...]:
        return next(heads for prefix, heads in _AUDIENCES if self.path.startswith(prefix))


def _options() -> dict[str, set[str]]:
    """By command, such as 'plan serve'; 'process' are the services themselves."""
    found = {
        name: {"--config", *(f"--{field.replace('_', '-')}" for field in config.model_fields)}
        for name, config in (("process", ProcessConfig), ("headway-controller", ControllerConfig))
    }

    def walk(name: str, command: Any) -> None:
        found[name] = {option for given in command.params for option in (*given.opts, *given.secondary_opts)}
        for child, inner in getattr(command, "commands", {}).items():
            walk(f"{name} {child}", inner)

    for name in COMMANDS:
        walk(name, get_command(import_module(f"headway.cli.{name}").app))
    return found


def _messages() -> Iterator[Message]:
    """Every text of several words in the code that is no docstring, f-strings with {} for what they fill in."""
    for source in ("services", "workers"):
        for path in sorted((ROOT / source).rglob("*.py")):
            tree = ast.parse(path.read_text())
            nodes = list(ast.walk(tree))
            skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            skipped |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in nodes:
                text = None if id(node) in skipped else _text(node)
                if text is not None and " " in text:
                    yield Message(str(path.relative_to(ROOT)), node.lineno, text)  # type: ignore[attr-defined]


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _faults(message: Message, options: Mapping[str, set[str]]) -> Iterator[str]:
    for program, words, rest in _COMMAND.findall(message.text):
        if program == "headway":
            command = _longest(words.split(), options)
            if not command:
                yield f"there is no command 'headway{words}'"
            elif wrong := set(_FLAG.findall(rest)) - options[command]:
                yield f"headway {command} has no {', '.join(wrong)}"
    if message.path.startswith(_FOREIGN):
        return
    heads = message.audience
    known = set().union(*(flags for name, flags in options.items() if any(name.startswith(head) for head in heads)))
    for flag in _FLAG.findall(_COMMAND.sub("", message.text)):
        if flag not in known | _VLLMS:
            yield f"none of {heads} has {flag}"


def _longest(words: list[str], options: Mapping[str, set[str]]) -> str:
    names = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    return next((name for name in names if name in options), "")


def test_every_flag_and_command_that_a_message_names_exists() -> None:
    options = _options()
    messages = list(_messages())
    faults = [f"{each.path}:{each.line}: {fault}" for each in messages for fault in _faults(each, options)]
    assert not faults, "\n".join(faults)
    assert any("--max-concurrency" in each.text for each in messages), "hints are found"


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("services/headway/gateway/x.py", "Raise --max-conc.", "none of ('up',) has --max-conc"),
        ("services/headway/gateway/x.py", "Ask `headway plan serve --max-concurrency 3`.", "has no --max-concurrency"),
        ("services/headway/cli/up.py", "See `headway sing`.", "no command 'headway sing'"),
        ("services/headway/cli/down.py", "Start one with `headway up --port 0`, or name --endpoint.", "has --endpoint"),
    ],
)
def test_a_wrong_hint_is_found(path: str, text: str, fault: str) -> None:
    (found,) = _faults(Message(path, 1, text), _options())
    assert fault in found
