"""Reads the files that a placement problem names."""

import base64
import hashlib
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

from headway.core.catalogue import read_catalogue
from headway.core.cluster_file import read_cluster_file
from headway.core.codec import from_document
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.models_file import ModelEntry, read_models_file
from headway.core.placement_problem import ServingCluster, TraceFile, WorkloadSource
from headway.core.stage_profile import StageProfile
from headway.core.workload_spec import parse_workload_spec
from headway.rpc.child import call_child

_MAX_FILE_BYTES = 60 * 1024**2
_READ_TIMEOUT_S = 120.0


def read_models(path: Path) -> tuple[ModelEntry, ...]:
    return read_models_file(read_bytes(path).decode(errors="replace"), file=str(path))


def read_clusters(path: Path, *, catalogue: Path | None) -> tuple[ServingCluster, ...]:
    text = read_bytes(path).decode(errors="replace")
    return read_cluster_file(text, file=str(path), catalogue=read_catalogue(catalogue))


def read_traces(specs: Iterable[str], *, beside: Path | None = None) -> dict[str, bytes]:
    """Reads the trace files that the specifications name; returns their content by name.

    Args:
        beside: where else to look for them: the directory of the plan that names them.
    """
    names = {parse_workload_spec(spec).file for spec in specs if spec} - {""}
    return {name: read_bytes(_find(Path(name), beside)) for name in sorted(names)}


def trace_files(contents: dict[str, bytes]) -> tuple[TraceFile, ...]:
    return tuple(TraceFile(name=name, sha256=hashlib.sha256(content).hexdigest()) for name, content in contents.items())


def traces_of(workload: WorkloadSource, *, plan: Path) -> dict[str, bytes]:
    return read_traces((workload.spec, workload.held_out), beside=plan.parent)


async def read_profiles(path: Path, *, device: str) -> list[StageProfile]:
    """Reads stage profiles from a file in AlpaServe's form; the profiler's reader runs in a process of its own."""
    request = {"content": base64.b64encode(read_bytes(path)).decode(), "hardware": device}
    answers = call_child("headway.profiler.formats", request, deadline_s=_READ_TIMEOUT_S)
    async with aclosing(answers):
        documents = [answer async for answer in answers]
    if any("weight_bytes" not in document for document in documents):
        raise InvalidArgumentError(
            f"{path} holds no profiles of stages.", hint="AlpaServe's form has them; see docs/profile.md."
        )
    return [from_document(StageProfile, document) for document in documents]


def read_bytes(path: Path) -> bytes:
    """Reads a file. NotFoundError where it cannot be read, InvalidArgumentError where it is too large for a planner."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}.", hint="Name a file that exists.") from error
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidArgumentError(
            f"{path} is larger than {_MAX_FILE_BYTES // 1024**2} MiB.", hint="Compress it by gzip, or cut it."
        )
    return content


def read_text(path: Path) -> str:
    """Reads a text. As `read_bytes`, and InvalidArgumentError where it is no UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{path} is no text in UTF-8: {error}.", hint="Name a text file.") from None


def _find(path: Path, beside: Path | None) -> Path:
    if beside is not None and not path.exists() and (beside / path).exists():
        return beside / path
    return path
