"""A registry of images: models that were pushed as artifacts, or as images with a folder /models. Who asks is said in
Docker's configuration, in the folder that DOCKER_CONFIG names."""

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from headway.checkpoint.model_digest import file_digest
from headway.core.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError, UnavailableError
from headway.core.model_uri import ModelUri
from headway.fetch.archive import unpack
from headway.fetch.registry_auth import RegistryAuth, read_account
from headway.fetch.selection import select
from headway.fetch.source import RemoteFile

_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_NAMES = ("org.opencontainers.image.title", "org.cncf.model.filepath", "org.cnai.model.filepath")
"""Annotations of a layer that is one file, or one folder: ORAS' own, and those of CNCF's ModelPack."""
_IS_FOLDER = "io.deis.oras.content.unpack"
_IN_IMAGES = "models"
_ARCHIVE = ".layer-"
_LOOPBACK = ("localhost", "127.0.0.1")
_TIMEOUT_S = 30.0


class RegistrySource:
    """What a tag or a digest names now."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri = uri
        host, _, repository = uri.location.partition("/")
        scheme = "http" if host.partition(":")[0] in _LOOPBACK else "https"  # as Docker has it
        self._client = httpx.Client(
            base_url=f"{scheme}://{host}/v2/{repository}/",
            auth=RegistryAuth(read_account(host)),
            follow_redirects=True,
            timeout=_TIMEOUT_S,
        )
        text = self._manifest(uri.revision, (*_MANIFESTS, *_INDEXES))
        if (digest := manifest_of_index(text)) is not None:
            text = self._manifest(digest, _MANIFESTS)
        self.version = _digest(text)
        self.files = files_of_manifest(text)
        self._placing = threading.Lock()

    def download(self, file: RemoteFile, directory: Path) -> None:
        path = directory / file.name
        if not file.name.startswith(_ARCHIVE):
            path.parent.mkdir(exist_ok=True)
            self._append(file, path)
            return
        if _note_of(path).exists():
            return
        self._append(file, path)
        if f"sha256:{file_digest(path)}" != file.key:
            path.unlink()
            raise UnavailableError(f"A layer of {self._uri} arrived damaged.", hint="Try again.")
        found = path.with_suffix(".files")
        found.mkdir(exist_ok=True)
        deleted = unpack(path, found, below=_IN_IMAGES if path.suffix == f".{_IN_IMAGES}" else "")
        with self._placing:
            self._place(found, directory, layer=file, deleted=deleted)
        path.unlink()

    def _place(self, found: Path, directory: Path, *, layer: RemoteFile, deleted: list[str]) -> None:
        """Moves a layer's files to a directory, but for those that a later layer has brought or deletes, and deletes
        those of earlier ones: layers arrive in any order, and the last one that says something of a file counts."""
        place = self.files.index(layer)
        earlier, later = (_notes(files, directory) for files in (self.files[:place], self.files[place + 1 :]))
        names = [str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()]
        own = _Note(files=names, deleted=deleted)
        for name in names:
            if not any(note.decides(name) for note in later):
                (directory / name).parent.mkdir(exist_ok=True)
                (found / name).replace(directory / name)
        for name in {name for note in earlier for name in note.files if own.deletes(name)}:
            if not any(name in note.files for note in later):
                (directory / name).unlink(missing_ok=True)
        shutil.rmtree(found)
        path = _note_of(directory / layer.name)
        staging = path.with_suffix(".noted")
        staging.write_text(json.dumps(asdict(own)))
        staging.replace(path)

    def _append(self, file: RemoteFile, path: Path) -> None:
        """Downloads what is missing at the end of a file."""
        with path.open("ab") as out, _faults(self._uri):
            if (start := out.tell()) >= file.num_bytes:
                return
            headers = {"accept-encoding": "identity"} | ({"range": f"bytes={start}-"} if start else {})
            with self._client.stream("GET", f"blobs/{file.key}", headers=headers) as answer:
                answer.raise_for_status()
                if start and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                    out.truncate(0)
                for part in answer.iter_raw():
                    out.write(part)

    def _manifest(self, reference: str, kinds: tuple[str, ...]) -> bytes:
        with _faults(self._uri):
            answer = self._client.get(f"manifests/{reference}", headers={"accept": ", ".join(kinds)})
            text = answer.raise_for_status().content
        if reference.startswith("sha256:") and _digest(text) != reference:
            raise UnavailableError(f"The manifest {reference} of {self._uri} arrived damaged.", hint="Try again.")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What a layer has brought, and what it deletes of those before it: names of files and folders, '' for all."""

    files: list[str]
    deleted: list[str]

    def decides(self, name: str) -> bool:
        """Whether a file of a layer before it does not count."""
        return name in self.files or self.deletes(name)

    def deletes(self, name: str) -> bool:
        is_gone = any(each in ("", name) or name.startswith(f"{each}/") for each in self.deleted)
        return is_gone and name not in self.files


def _note_of(archive: Path) -> Path:
    """The file that is there once an archive is unpacked, and tells what was in it."""
    return archive.with_suffix(".unpacked")


def _notes(files: Sequence[RemoteFile], directory: Path) -> list[_Note]:
    """Of those archives that are unpacked by now."""
    paths = [_note_of(directory / file.name) for file in files if file.name.startswith(_ARCHIVE)]
    return [_Note(**json.loads(path.read_text())) for path in paths if path.exists()]


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def manifest_of_index(text: bytes) -> str | None:
    """Of an index the digest of a manifest for Linux: a model's files are the same for every processor. None where it
    is a manifest itself.

    InvalidArgumentError where it has none, or is neither.
    """
    with _reading():
        if "manifests" not in (document := json.loads(text)):
            return None
        for manifest in document["manifests"]:
            if (manifest.get("platform") or {}).get("os", "linux") == "linux":
                return str(manifest["digest"])
    raise InvalidArgumentError("The registry has it for other systems than Linux.")


def files_of_manifest(text: bytes) -> tuple[RemoteFile, ...]:
    """The layers that are a model's files, or archives of such, in order; one that is there twice where it is last.

    InvalidArgumentError where it is no manifest.
    """
    files: dict[str, RemoteFile] = {}
    with _reading():
        for layer in json.loads(text)["layers"]:
            if (file := _file(layer)) is not None:
                files.pop(file.name, None)
                files[file.name] = file
    wanted = select(files) | {name for name in files if name.startswith(_ARCHIVE)}
    return tuple(file for name, file in files.items() if name in wanted)


def _file(layer: Mapping[str, Any]) -> RemoteFile | None:
    """None for a layer that says nothing of the file it is."""
    annotations, kind, key = layer.get("annotations") or {}, layer["mediaType"], layer["digest"]
    algorithm, _, digest = key.partition(":")
    name = next((annotations[each].removeprefix("./") for each in _NAMES if each in annotations), "")
    if ".tar" in kind or annotations.get(_IS_FOLDER) == "true":
        name = f"{_ARCHIVE}{digest[:12]}.{'tar' if name else _IN_IMAGES}"
        return RemoteFile(name=name, key=key, num_bytes=int(layer["size"]))
    if not name:
        return None
    return RemoteFile(name=name, key=key, num_bytes=int(layer["size"]), sha256=digest if algorithm == "sha256" else "")


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"The registry's answer is no manifest: {error!r}.") from None


@contextmanager
def _faults(uri: ModelUri) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status == httpx.codes.NOT_FOUND:
            raise NotFoundError(f"The registry has no {uri}.", hint="Check its name and its tag.") from None
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise PermissionDeniedError(
                f"The registry does not give {uri} to this account.",
                hint="Give an account that may read it: DOCKER_CONFIG names a folder with a config.json.",
            ) from None
        raise UnavailableError(f"The registry answers {status} for {uri}.", hint="Try again.") from None
    except httpx.HTTPError as error:
        raise UnavailableError(
            f"The registry of {uri} does not answer: {error!r}.",
            hint="Is it to be reached from here? HTTPS_PROXY names a proxy.",
        ) from None
