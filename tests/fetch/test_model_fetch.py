"""`headway fetch`: a model's files, whole and checked, from the hub, a bucket and a registry."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oras.client
import pytest

from headway.checkpoint.model_digest import digest_of, files_of
from headway.checkpoint.model_directory import read_checkpoint
from headway.cli.models import read_models
from headway.core.errors import InvalidArgumentError, PermissionDeniedError, ResourceExhaustedError
from headway.core.model_uri import ModelUri, UriScheme, is_model_uri
from headway.core.slo import Slo
from headway.fetch.archive import unpack
from headway.fetch.model_fetch import fetch_model
from headway.fetch.registry import RegistrySource
from tests.checkpoints import make_checkpoint
from tests.command import run_headway
from tests.fetch.bucket import Bucket, serving_bucket
from tests.fetch.hub import COMMIT, Hub, serving_hub
from tests.fetch.pretended_registry import FILE, TITLE, pretending_registry
from tests.fetch.registry import NAME, PASSWORD, Registry, serving_registry
from tests.integration.stack import wait_for

_LEFT_THERE = ("pytorch_model.bin", "README.md", "modeling_tiny.py", "consolidated.safetensors", ".gitattributes")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as people publish them, with much beside it that is not needed to serve it."""
    directory = make_checkpoint(tmp_path_factory.mktemp("published") / "Tiny-Llama", "llama")
    for name in _LEFT_THERE:
        (directory / name).write_bytes(b"not needed")
    (directory / "original").mkdir()
    (directory / "original" / "params.json").write_text("{}")
    return directory


@pytest.fixture(scope="module")
def digest(model: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of what is needed, as people find it."""
    directory = tmp_path_factory.mktemp("needed")
    for path in model.iterdir():
        if path.is_file() and path.name not in _LEFT_THERE:
            shutil.copy(path, directory)
    command = "LC_ALL=C sha256sum -- * | sha256sum"
    return subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=True).stdout[:64]


@pytest.fixture
def hub(model: Path) -> Iterator[Hub]:
    with serving_hub() as hub:
        hub.models["acme/Tiny-Llama"] = model
        yield hub


@pytest.fixture(scope="module")
def bucket(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with serving_bucket(tmp_path_factory.mktemp("bucket")) as bucket:
        bucket.put(model, prefix="llamas/tiny")
        yield bucket


@pytest.fixture(scope="module")
def registry(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as registry:
        registry.push(model, repository="llamas/tiny:v1")
        yield registry


def _fetch(
    tmp_path: Path, uri: str, *arguments: str, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "HOME": str(tmp_path), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **(environment or {})}
    for name in ("XDG_CACHE_HOME", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_HOME", "SSL_CERT_DIR"):
        if name not in (environment or {}):
            variables.pop(name, None)
    return run_headway("fetch", uri, *arguments, environment=variables)


def _of_hub(hub: Hub, **variables: str) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, **variables}


def _fetched(tmp_path: Path, uri: str, *arguments: str, environment: dict[str, str]) -> dict[str, Any]:
    done = _fetch(tmp_path, uri, *arguments, "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _is_the_model(directory: Path, model: Path, digest: str) -> None:
    """What is needed of it, and nothing else, readable to others than who fetched it."""
    names = {path.name for path in directory.iterdir()}
    assert names - {".fetched.json"} == {path.name for path in model.iterdir() if path.is_file()} - {*_LEFT_THERE}
    assert digest_of(directory) == digest
    assert read_checkpoint(directory).spec == read_checkpoint(model).spec
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in directory.iterdir())
    assert directory.stat().st_mode & 0o777 == 0o755


def test_a_model_of_the_hub(hub: Hub, tmp_path: Path, model: Path, digest: str) -> None:
    told = _fetched(tmp_path, "hf://acme/Tiny-Llama", "--to", str(tmp_path / "tiny"), environment=_of_hub(hub))
    _is_the_model(tmp_path / "tiny", model, digest)
    assert told["version"] == COMMIT
    assert told["sha256"] == digest
    assert told["uri"] == "hf://acme/Tiny-Llama@main"
    num_bytes = sum(path.stat().st_size for path in files_of(tmp_path / "tiny"))
    assert told["num_bytes"] == told["total_bytes"] == num_bytes


def test_a_model_of_a_bucket(bucket: Bucket, tmp_path: Path, model: Path, digest: str) -> None:
    told = _fetched(tmp_path, "s3://models/llamas/tiny", "--to", str(tmp_path / "tiny"), environment=bucket.environment)
    _is_the_model(tmp_path / "tiny", model, digest)
    assert told["sha256"] == digest


def test_a_model_of_a_registry(registry: Registry, tmp_path: Path, model: Path, digest: str) -> None:
    told = _fetched(tmp_path, f"oci://{registry.host}/llamas/tiny:v1", "--to", str(tmp_path / "tiny"), environment={})
    _is_the_model(tmp_path / "tiny", model, digest)
    assert told["version"].startswith("sha256:")
    by_digest = f"oci://{registry.host}/llamas/tiny@{told['version']}"
    assert _fetched(tmp_path, by_digest, environment={})["version"] == told["version"]


def test_a_folder_that_was_pushed_to_a_registry_as_an_archive(
    registry: Registry, tmp_path: Path, model: Path, digest: str
) -> None:
    registry.push_folder(model, repository="llamas/folder:v1")
    uri = f"oci://{registry.host}/llamas/folder:v1"
    assert _fetched(tmp_path, uri, "--to", str(tmp_path / "tiny"), environment={})["sha256"] == digest
    _is_the_model(tmp_path / "tiny", model, digest)


def test_a_model_in_the_folder_models_of_an_image(registry: Registry, tmp_path: Path, model: Path, digest: str) -> None:
    """As KServe's modelcars have it, in a layer above those of a system."""
    layers = [tmp_path / "system.tar.gz", tmp_path / "model.tar.gz"]
    with tarfile.open(layers[0], "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("etc/config.json"), io.BytesIO())
    with tarfile.open(layers[1], "w:gz") as archive:
        archive.add(model, arcname="models")
        archive.addfile(tarfile.TarInfo("models/../escape.json"), io.BytesIO())
    client = oras.client.OrasClient(hostname=registry.host, insecure=True)
    container = client.get_container(f"{registry.host}/llamas/image:v1")
    manifest = oras.oci.NewManifest()
    for layer in layers:
        described = oras.oci.NewLayer(str(layer), media_type="application/vnd.oci.image.layer.v1.tar+gzip")
        client.upload_blob(str(layer), container, described)
        manifest["layers"].append({**described, "annotations": None})
    (tmp_path / "config.json").write_text("{}")
    config, path = oras.oci.ManifestConfig(str(tmp_path / "config.json"))
    client.upload_blob(path, container, config)
    manifest["config"] = config
    assert client.upload_manifest(manifest, container).ok
    uri = f"oci://{registry.host}/llamas/image:v1"
    assert _fetched(tmp_path, uri, "--to", str(tmp_path / "tiny"), environment={})["sha256"] == digest
    _is_the_model(tmp_path / "tiny", model, digest)
    assert not list(tmp_path.rglob("escape.json"))


def test_a_registry_that_compresses_what_it_sends_is_not_asked_to(tmp_path: Path) -> None:
    files = [(b"{}", FILE, {TITLE: "config.json"}), (b"weights", FILE, {TITLE: "model.safetensors"})]
    with pretending_registry(files) as uri:
        fetch_model(ModelUri.parse(uri), tmp_path / "tiny")
    assert (tmp_path / "tiny/model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize("token", [b"<html>", b"[]", b"{}"])
def test_who_gives_no_token_gives_no_model(token: bytes) -> None:
    with pretending_registry([], token=token) as uri, pytest.raises(PermissionDeniedError, match="token"):
        RegistrySource(ModelUri.parse(uri))


def test_what_does_not_fit_on_the_disk_is_told_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers of an archive say how much it unpacks to."""
    with tarfile.open(tmp_path / "large.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("model.safetensors")
        info.size = 100_000_000
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50_000_000))
    with pytest.raises(ResourceExhaustedError, match=r"0\.1 GB are to come"):
        unpack(tmp_path / "large.tar.gz", tmp_path, below="")
    assert {path.name for path in tmp_path.iterdir()} == {"large.tar.gz"}


def test_a_registry_that_asks_for_a_password(tmp_path: Path, model: Path) -> None:
    with serving_registry(tmp_path, has_password=True) as registry:
        refused = _fetch(tmp_path, f"oci://{registry.host}/llamas/tiny", environment={})
        assert refused.returncode == 1
        assert "to this account" in refused.stderr
        assert "DOCKER_CONFIG" in refused.stderr
        account = b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": account}}}))
        missing = _fetch(tmp_path, f"oci://{registry.host}/llamas/tiny", environment={"DOCKER_CONFIG": str(tmp_path)})
        assert "The registry has no" in missing.stderr


def test_where_nothing_is_said_it_goes_to_a_cache_and_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    told = _fetched(tmp_path, "hf://acme/Tiny-Llama@v1", environment=_of_hub(hub))
    directory = Path(told["directory"])
    assert directory.parent == tmp_path / ".cache/headway/models"
    assert directory.name.startswith("Tiny-Llama-")
    num_asked = len(hub.asked)
    again = _fetched(tmp_path, "hf://acme/Tiny-Llama", "--revision", "v1", environment=_of_hub(hub))
    assert (again["directory"], again["sha256"]) == (told["directory"], told["sha256"])
    assert len(hub.asked) == num_asked
    other = _fetched(tmp_path, "hf://acme/Tiny-Llama", environment=_of_hub(hub))
    assert other["directory"] != told["directory"]


def test_a_stack_fetches_the_models_that_it_is_to_serve(
    bucket: Bucket, tmp_path: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**bucket.environment, "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SSL_CERT_DIR")
    arguments = ("s3://models/llamas/tiny", "chat=s3://models/llamas/tiny")
    models = read_models(arguments, dtype=None, max_model_len=None, slo=Slo())
    assert [model.name for model in models] == ["tiny", "chat"]
    for model in models:
        assert Path(model.directory).parent == tmp_path / "headway/models"
        assert digest_of(Path(model.directory)) == digest


def test_a_fetch_that_is_interrupted_ends_at_once_and_says_that_nothing_is_lost(hub: Hub, tmp_path: Path) -> None:
    hub.delay_s = 60
    environment = {**os.environ, **_of_hub(hub), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "headway.cli", "fetch", "hf://acme/Tiny-Llama"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: bool(hub.asked))
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "the same command goes on with it" in told
    assert "Traceback" not in told


def test_what_breaks_off_goes_on_from_there(hub: Hub, tmp_path: Path, model: Path) -> None:
    hub.models["acme/large"] = shutil.copytree(model, tmp_path / "large")
    large = tmp_path / "large" / "model.safetensors"
    large.write_bytes(os.urandom(30_000_000))
    hub.breaks_after = 25_000_000
    _fetched(tmp_path, "hf://acme/large", "--to", str(tmp_path / "to"), environment=_of_hub(hub))
    assert (tmp_path / "to" / "model.safetensors").read_bytes() == large.read_bytes()
    assert [asked for name, asked in hub.asked if name == "model.safetensors" and asked] == ["bytes=20971520-"]


def test_what_arrives_damaged_is_not_taken(hub: Hub, tmp_path: Path, digest: str) -> None:
    hub.spoils = "model.safetensors"
    done = _fetch(tmp_path, "hf://acme/Tiny-Llama", "--to", str(tmp_path / "tiny"), environment=_of_hub(hub))
    assert "model.safetensors of hf://acme/Tiny-Llama@main arrived damaged" in done.stderr
    assert not (tmp_path / "tiny").exists()
    hub.spoils = ""
    told = _fetched(tmp_path, "hf://acme/Tiny-Llama", "--to", str(tmp_path / "tiny"), environment=_of_hub(hub))
    assert told["sha256"] == digest


def test_files_with_another_digest_are_not_taken(hub: Hub, tmp_path: Path, digest: str) -> None:
    target = tmp_path / "tiny"
    arguments = ("hf://acme/Tiny-Llama", "--to", str(target), "--sha256")
    refused = _fetch(tmp_path, *arguments, "0" * 64, environment=_of_hub(hub))
    assert f"have the digest {digest}, not {'0' * 64}" in refused.stderr
    assert not target.exists()
    assert _fetched(tmp_path, *arguments, digest, environment=_of_hub(hub))["sha256"] == digest
    refused = _fetch(tmp_path, *arguments, "0" * 64, environment=_of_hub(hub))
    assert f"have the digest {digest}" in refused.stderr


def test_a_report_says_how_far_it_is_and_why_it_failed(hub: Hub, tmp_path: Path, digest: str) -> None:
    report = tmp_path / "report.json"
    failed = _fetch(tmp_path, "hf://acme/nothing", "--report", str(report), environment=_of_hub(hub))
    assert failed.returncode == 1
    assert "The hub has no model acme/nothing" in json.loads(report.read_text())["error"]
    _fetched(tmp_path, "hf://acme/Tiny-Llama", "--report", str(report), environment=_of_hub(hub))
    told = json.loads(report.read_text())
    assert (told["sha256"], told["version"], told["error"]) == (digest, COMMIT, "")


def test_refusals_of_the_hub_are_told_apart(hub: Hub, tmp_path: Path) -> None:
    hub.models["acme/gated"] = hub.models["acme/Tiny-Llama"]
    hub.gated.add("acme/gated")
    for uri, told in (
        ("hf://acme/gated", "accepted its terms"),
        ("hf://acme/Tiny-Llama@v7", "acme/Tiny-Llama has no revision v7"),
        ("hf://acme/none", "The hub has no model acme/none"),
    ):
        assert told in _fetch(tmp_path, uri, environment=_of_hub(hub)).stderr
    hub.token = "hf_secret"
    assert "HF_TOKEN" in _fetch(tmp_path, "hf://acme/Tiny-Llama", environment=_of_hub(hub)).stderr
    _fetched(tmp_path, "hf://acme/Tiny-Llama", environment=_of_hub(hub, HF_TOKEN="hf_secret"))
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    assert "The hub does not answer" in _fetch(tmp_path, "hf://acme/Tiny-Llama@v1", environment=nowhere).stderr


def test_refusals_of_a_bucket_and_a_registry(bucket: Bucket, registry: Registry, tmp_path: Path) -> None:
    for uri, told in (
        ("s3://models/llamas/none", "has no files of a model"),
        ("s3://nowhere/tiny", "There is no s3://nowhere/tiny"),
        (f"oci://{registry.host}/llamas/none", "The registry has no"),
        (f"oci://{registry.host}/llamas/tiny:v7", "The registry has no"),
        ("oci://127.0.0.1:9/llamas/tiny", "does not answer"),
    ):
        failed = _fetch(tmp_path, uri, environment=bucket.environment)
        assert told in failed.stderr, failed.stderr
        assert "Traceback" not in failed.stderr


def test_what_is_no_model_is_refused(hub: Hub, tmp_path: Path, model: Path) -> None:
    for missing, told in (("config.json", "has no config.json"), ("model.safetensors", "no weights as safetensors")):
        broken = shutil.copytree(model, tmp_path / "broken" / missing)
        for path in broken.glob("*.safetensors") if missing.endswith("safetensors") else [broken / missing]:
            path.unlink()
        hub.models["acme/broken"] = broken
        done = _fetch(tmp_path, "hf://acme/broken", "--to", str(tmp_path / f"no {missing}"), environment=_of_hub(hub))
        assert told in done.stderr
        assert done.returncode == 1


def test_a_directory_with_something_else_is_left_as_it_is(hub: Hub, tmp_path: Path) -> None:
    empty, other = tmp_path / "empty", tmp_path / "other"
    for directory in (empty, other):
        directory.mkdir()
    (other / "notes.txt").write_text("mine")
    _fetched(tmp_path, "hf://acme/Tiny-Llama", "--to", str(empty), environment=_of_hub(hub))
    for directory, uri, told in (
        (other, "hf://acme/Tiny-Llama", "is there already, with files of somebody else"),
        (empty, "hf://acme/Tiny-Llama@v1", "is there already, with hf://acme/Tiny-Llama@main"),
    ):
        assert told in _fetch(tmp_path, uri, "--to", str(directory), environment=_of_hub(hub)).stderr
    assert (other / "notes.txt").read_text() == "mine"


def test_a_directory_that_cannot_be_written_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed = _fetch(tmp_path, "hf://acme/Tiny-Llama", "--to", str(tmp_path / "file" / "x"), environment=_of_hub(hub))
    assert "cannot be written" in failed.stderr


@pytest.mark.parametrize(
    ("text", "revision", "told"),
    [
        ("hf://acme/tiny", "", (UriScheme.HF, "acme/tiny", "main")),
        ("hf://gpt2", "", (UriScheme.HF, "gpt2", "main")),
        ("hf://acme/tiny@refs/pr/1", "", (UriScheme.HF, "acme/tiny", "refs/pr/1")),
        ("hf://acme/tiny", "v1", (UriScheme.HF, "acme/tiny", "v1")),
        ("s3://bucket/a/b/", "", (UriScheme.S3, "bucket/a/b", "")),
        ("oci://ghcr.io/acme/tiny", "", (UriScheme.OCI, "ghcr.io/acme/tiny", "latest")),
        ("oci://host:5000/acme/tiny:v1", "", (UriScheme.OCI, "host:5000/acme/tiny", "v1")),
        (f"oci://localhost/tiny:v1@sha256:{'a' * 64}", "", (UriScheme.OCI, "localhost/tiny", f"sha256:{'a' * 64}")),
    ],
)
def test_places_are_read(text: str, revision: str, told: tuple[UriScheme, str, str]) -> None:
    uri = ModelUri.parse(text, revision=revision)
    assert (uri.scheme, uri.location, uri.revision) == told
    assert ModelUri.parse(str(uri)) == uri
    assert is_model_uri(text)


@pytest.mark.parametrize(
    ("text", "revision", "told"),
    [
        ("acme/tiny", "", "nowhere that files are fetched from"),
        ("gs://bucket/tiny", "", "nowhere that files are fetched from"),
        ("hf://", "", "names no model"),
        ("hf://a/b/c", "", "names no model"),
        ("hf://../etc", "", "names no model"),
        ("hf://acme/tiny@", "", "names no model"),
        ("s3://B/x", "", "names no model"),
        ("s3://bucket/../x", "", "names no model"),
        ("oci://tiny", "", "names no model"),
        ("oci://ghcr.io/acme/tiny@sha256:12", "", "names no model"),
        ("hf://acme/tiny@v1", "v2", "contradict each other"),
        ("hf://acme/tiny", "-v", "is no revision"),
        ("s3://bucket/x", "v1", "has no revisions"),
    ],
)
def test_other_texts_are_refused(text: str, revision: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        ModelUri.parse(text, revision=revision)
