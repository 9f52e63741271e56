"""The command as a whole: help, faults, exit codes."""

import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_command

from headway.cli.app import COMMANDS
from tests.cli.conftest import Run


def test_help_lists_every_command(headway: Run) -> None:
    result = headway("--help")
    assert result.returncode == 0
    for name, summary in COMMANDS.items():
        assert name in result.stdout
        assert summary in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_begins_its_own_help(name: str) -> None:
    command = get_command(import_module(f"headway.cli.{name}").app)
    assert (command.help or "").startswith(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    commands = [get_command(import_module(f"headway.cli.{name}").app)]
    while commands:
        command = commands.pop()
        commands.extend(getattr(command, "commands", {}).values())
        assert command.help
        assert [param.name for param in command.params if not getattr(param, "help", None)] == []


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from headway.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'grpc', 'redis', 'numpy', 'pydantic', 'google.protobuf', 'httpx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_no_command_imports_what_only_computes_or_draws() -> None:
    """A figure's library is imported by who draws one."""
    script = (
        "import sys; from importlib import import_module; from headway.cli.app import COMMANDS\n"
        "for name in COMMANDS: import_module(f'headway.cli.{name}')\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'scipy', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_wrong_usage_exits_with_2_and_suggests_the_right_one(headway: Run) -> None:
    result = headway("stats")
    assert result.returncode == 2
    assert "Did you mean 'status'?" in result.stderr
    assert headway("up").returncode == 2
    assert headway("up", "--model", "x", "--memory", "much").returncode == 2


def test_a_fault_is_told_on_standard_error_with_a_hint_and_no_traceback(headway: Run) -> None:
    result = headway("status")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: No Headway stack is running")
    assert "hint: Start one with `headway up --model DIR`" in result.stderr
    assert "Traceback" not in result.stderr


def test_completion_knows_the_commands() -> None:
    """Of the shell that the command is called from."""
    command = f"{sys.executable} -m headway.cli --show-completion; exit $?"
    shown = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "_HEADWAY_COMPLETE" in shown.stdout
