"""Brings a model's files to a directory: whole, checked, and all at once."""

import fcntl
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from headway.checkpoint.model_digest import combined_digest, file_digest, files_of
from headway.checkpoint.whole_directory import put_in_place, sync
from headway.core.codec import from_document, to_document
from headway.core.errors import (
    FailedPreconditionError,
    HeadwayError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from headway.core.fetch_report import FETCH_RECORD, FetchReport
from headway.core.model_uri import ModelUri
from headway.fetch.open_source import open_source
from headway.fetch.room import check_room
from headway.fetch.source import ModelSource, RemoteFile

_FILES_AT_ONCE = 4
_WAITS_S = (1.0, 2.0, 4.0)
_REPORT_EVERY_S = 0.5
_READABLE = 0o644
_ENTERABLE = 0o755


def fetch_model(
    uri: ModelUri, to: Path, *, sha256: str = "", report: Callable[[FetchReport], None] = lambda _: None
) -> FetchReport:
    """Brings a model's files to a directory that is not there before they all are.

    What an earlier call had brought when it ended is not fetched again. A directory that is there already is left as
    it is. Of several calls for one directory, also of other machines that share it, one works and the others wait.

    Args:
        sha256: the digest that the files have to have together; empty for any. See `model_digest`.
        report: is told every half second how far it is.

    Returns:
        The last report.

    Raises:
        NotFoundError: there is no such model, or no such revision.
        InvalidArgumentError: the files have another digest, or are no model's; the directory cannot be written.
        FailedPreconditionError: there is something else in the directory.
        PermissionDeniedError: the place does not give them to us.
        ResourceExhaustedError: there is not enough room.
        UnavailableError: the place does not answer.
    """
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        report(FetchReport(uri=str(uri)))
        with _alone(to):
            is_there = to.is_dir() and any(to.iterdir())
            if is_there:
                done = _look(uri, to, is_checked=bool(sha256))
            else:
                done = _bring(open_source(uri), uri, to, sha256=sha256, report=report)
    except OSError as error:
        raise InvalidArgumentError(
            f"{to} cannot be written: {error.strerror}.", hint="Give a directory that this user may write to."
        ) from None
    if sha256 and done.sha256 != sha256:
        raise _is_another(uri, done.sha256, sha256)
    report(done)
    return done


@contextmanager
def _alone(to: Path) -> Iterator[None]:
    """Waits until nobody else brings files there."""
    with to.with_name(f".{to.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _look(uri: ModelUri, directory: Path, *, is_checked: bool) -> FetchReport:
    """What was brought there earlier, with the digest that it has now where it is to be checked."""
    before = _read_record(directory)
    if before is None or before.uri != str(uri):
        what = "files of somebody else" if before is None else before.uri
        raise FailedPreconditionError(
            f"{directory} is there already, with {what}.", hint="Give another directory, or delete that one."
        )
    return replace(before, sha256=combined_digest(_digests(files_of(directory)))) if is_checked else before


def _read_record(directory: Path) -> FetchReport | None:
    """None where a directory was not fetched, or says nothing of it that can be read."""
    try:
        return from_document(FetchReport, json.loads((directory / FETCH_RECORD).read_bytes()), is_stored=True)
    except (FileNotFoundError, ValueError, InvalidArgumentError):
        return None


def _bring(
    source: ModelSource, uri: ModelUri, to: Path, *, sha256: str, report: Callable[[FetchReport], None]
) -> FetchReport:
    staging = to.with_name(f".{to.name}.{source.version.removeprefix('sha256:')[:16]}.part")
    for other in to.parent.glob(f".{to.name}.*.part"):
        if other != staging:
            shutil.rmtree(other)  # of a version that is not wanted any more
    staging.mkdir(exist_ok=True)
    total_bytes = sum(file.num_bytes for file in source.files)
    check_room(staging, total_bytes - _size(staging))

    def tell() -> None:
        num_bytes = min(_size(staging), total_bytes)
        report(FetchReport(uri=str(uri), version=source.version, num_bytes=num_bytes, total_bytes=total_bytes))

    _download_all(source, staging, tell)
    _check_complete(uri, staging)
    digests = _digests(files_of(staging))
    _check_files(uri, staging, source.files, digests)
    digest = combined_digest(digests)
    if sha256 and digest != sha256:
        raise _is_another(uri, digest, sha256)
    done = FetchReport(
        uri=str(uri), version=source.version, num_bytes=total_bytes, total_bytes=total_bytes, sha256=digest
    )
    _publish(staging, to, done)
    return done


def _download_all(source: ModelSource, directory: Path, tell: Callable[[], None]) -> None:
    """By threads that end with the process: whoever interrupts it, or is told of a fault, waits for none of them."""
    waiting: SimpleQueue[RemoteFile] = SimpleQueue()
    for file in source.files:
        waiting.put(file)
    is_over = threading.Event()
    arrived: list[RemoteFile] = []
    faults: list[HeadwayError | OSError] = []

    def work() -> None:
        with suppress(Empty):
            while not is_over.is_set():
                file = waiting.get_nowait()
                try:
                    _download(source, file, directory, is_over)
                    arrived.append(file)
                except (HeadwayError, OSError) as error:
                    faults.append(error)
                    is_over.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_FILES_AT_ONCE, len(source.files)))]
    for thread in threads:
        thread.start()
    while not is_over.is_set() and (alive := [thread for thread in threads if thread.is_alive()]):
        alive[0].join(_REPORT_EVERY_S)
        tell()
    if faults:
        raise faults[0]
    if len(arrived) < len(source.files):
        raise InternalError("A thread that downloads ended for a reason that it has told on standard error.")


def _download(source: ModelSource, file: RemoteFile, directory: Path, is_over: threading.Event) -> None:
    """Goes on where a place breaks off, a few times, and not once another file could not be had."""
    for wait_s in _WAITS_S:
        try:
            source.download(file, directory)
        except UnavailableError:
            if is_over.wait(wait_s):
                raise
        else:
            return
    source.download(file, directory)


def _check_complete(uri: ModelUri, directory: Path) -> None:
    names = {path.name for path in files_of(directory)}
    if "config.json" not in names:
        raise NotFoundError(
            f"{uri} has no config.json.", hint="A model in Hugging Face's format has one at its top; say where that is."
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise InvalidArgumentError(
            f"{uri} has no weights as safetensors.",
            hint="Others are not read: convert them with transformers, save_pretrained(DIR, safe_serialization=True).",
        )


def _check_files(uri: ModelUri, directory: Path, files: Sequence[RemoteFile], digests: Mapping[str, str]) -> None:
    """Deletes what did not arrive as it was sent, so that it is fetched again."""
    for file in files:
        path = directory / file.name
        if not file.sha256:
            continue
        digest = digests[file.name] if file.name in digests else file_digest(path)
        if digest != file.sha256:
            path.unlink()
            raise UnavailableError(f"{file.name} of {uri} arrived damaged.", hint="Try again.")


def _digests(files: Sequence[Path]) -> dict[str, str]:
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return dict(zip((path.name for path in files), pool.map(file_digest, files), strict=True))


def _publish(staging: Path, to: Path, done: FetchReport) -> None:
    """Makes it the directory, readable to all: those that serve it may be other users than the one that fetches."""
    for path in staging.iterdir():
        if path.name.startswith("."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (staging / FETCH_RECORD).write_text(json.dumps(to_document(done)))
    for path in staging.rglob("*"):
        path.chmod(_ENTERABLE if path.is_dir() else _READABLE)
        sync(path)
    staging.chmod(_ENTERABLE)
    put_in_place(staging, to)


def _size(directory: Path) -> int:
    """Of what is there by now; files may be renamed meanwhile."""
    num_bytes = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            num_bytes += path.stat().st_size if path.is_file() else 0
    return num_bytes


def _is_another(uri: ModelUri, digest: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The files of {uri} have the digest {digest}, not {wanted}.",
        hint="Correct the digest, or give the revision that it is of.",
        field="sha256",
    )
