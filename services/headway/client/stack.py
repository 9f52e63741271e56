"""Finds a stack on this machine by the file `stack.json` in its state directory."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from headway.client.private_file import replace_private_file
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError, NotFoundError, UnauthenticatedError
from headway.core.tls_files import TlsFiles

STACK_FILE = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """Identifies a process by pid and start: pids are reused, the pair is not. For `start` see
    `headway.observe.process_start`."""

    pid: int
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack that `headway up` started.

    Attributes:
        supervisor, redis, controller: its first processes; the controller knows of the others.
        http_url: where the OpenAI API is served.
        grpc_endpoint: host:port of the inference service.
        controller_endpoint: host:port; empty until the controller runs.
        api_key: one that the gateway accepts; empty where it accepts every client.
        tls: the files of certificates that it is called with; None where calls are not encrypted.
    """

    redis_url: str
    http_url: str
    grpc_endpoint: str
    supervisor: ProcessId
    redis: ProcessId | None = None
    controller: ProcessId | None = None
    controller_endpoint: str = ""
    api_key: str = ""
    tls: TlsFiles | None = None


def default_state_dir() -> Path:
    """The directory in which `headway up` keeps its state unless told otherwise, by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "headway" / "default"


def read_stack(state_dir: Path) -> Stack | None:
    """Reads the stack whose state is there, or None; it may have crashed since. UnauthenticatedError for other
    users."""
    path = state_dir / STACK_FILE
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except PermissionError:
        raise unreadable(path) from None
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is not valid JSON: {error}.", hint=f"Delete {path}.") from error
    return from_document(Stack, document, is_stored=True)


def unreadable(path: Path) -> UnauthenticatedError:
    """The error for another user than the stack's owner."""
    return UnauthenticatedError(
        f"{path} may be read by the owner of the stack alone.",
        hint="Run the command as that user, or use the gateway: --endpoint HOST:PORT, and --api-key where it asks.",
    )


def find_stack(state_dir: Path | None = None) -> Stack:
    """Finds the stack of a state directory (None: the default one); NotFoundError when none was started there."""
    directory = state_dir or default_state_dir()
    if (stack := read_stack(directory)) is None:
        raise NotFoundError(
            f"No Headway stack is running with its state in {directory}.",
            hint="Start one with `headway up --model DIR`, or name another with --state-dir.",
        )
    return stack


def write_stack(state_dir: Path, stack: Stack) -> None:
    """Replaces the file in one step. Only its owner may read it, as it holds an API key."""
    replace_private_file(state_dir / STACK_FILE, json.dumps(to_document(stack), indent=2).encode())


def remove_stack(state_dir: Path) -> None:
    (state_dir / STACK_FILE).unlink(missing_ok=True)
