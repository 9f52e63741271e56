"""What `headway train --manifest` and `--kubernetes` write, and what they refuse."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from headway.cli.train import app
from headway.cli.training_run.manifest import PodOptions, check_shared, run_manifest
from headway.cli.training_run.pods import state_of_job, submit
from headway.cli.training_run.runs import find_run
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.training_job import DataSettings, TrainingJob, ValidationSettings

JOB = TrainingJob(model="mine:small", data=DataSettings(tokens="/shared/text.safetensors"), batch=16, steps=4)


def manifest(directory: Path, job: TrainingJob = JOB) -> str:
    pods = PodOptions(claim="training", image="headway-worker:1", cores=4, user=1000, group=1000)
    return run_manifest(directory, job, peak_bytes=3 << 30, state_dir=Path("/shared"), pods=pods)


def test_pods_find_each_other_and_the_run() -> None:
    directory = Path("/shared/training/train-20261127T020000-0a1b2c")
    service, job = yaml.safe_load_all(manifest(directory))
    name = service["metadata"]["name"]
    assert name == directory.name.lower(), "names are in small letters"
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    assert pod["spec"]["subdomain"] == job["metadata"]["name"] == name
    (rank,) = pod["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert rank["args"] == [str(directory), f"{name}-0.{name}", str(port["port"]), "4"]
    assert rank["resources"]["requests"] == {"cpu": "4", "memory": "4096Mi"}
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == JOB.workers
    assert job["spec"]["backoffLimitPerIndex"] == JOB.restarts


def test_a_rank_that_computes_on_a_gpu_asks_for_one() -> None:
    _, document = yaml.safe_load_all(manifest(Path("/shared/training/train-1"), replace(JOB, device="cuda")))
    (rank,) = document["spec"]["template"]["spec"]["containers"]
    assert rank["resources"]["limits"] == {"cpu": "4", "nvidia.com/gpu": "1"}


def test_pods_keep_to_the_restricted_standard() -> None:
    _, job = yaml.safe_load_all(manifest(Path("/shared/training/train-1")))
    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    security = pod["containers"][0]["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("job", "state_dir", "said"),
    [
        (JOB, None, "on their claim only"),
        (replace(JOB, ray="auto"), Path("/shared"), "in pods or on a Ray cluster"),
        (JOB, Path("/elsewhere"), "do not find /shared/text.safetensors"),
        (
            replace(JOB, validation=ValidationSettings(data=DataSettings(tensors="/tmp/held-out.safetensors"))),
            Path("/shared"),
            "do not find /tmp/held-out.safetensors",
        ),
    ],
)
def test_what_pods_would_not_find_is_refused(job: TrainingJob, state_dir: Path | None, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        check_shared(job, state_dir)
    check_shared(JOB, Path("/shared"))


def test_a_cluster_that_cannot_be_asked_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "training/train-1"
    directory.mkdir(parents=True)
    (directory / "job.json").write_text(json.dumps(to_document(JOB)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FailedPreconditionError, match="no kubectl on the PATH"):
        submit(directory, manifest(directory), namespace="")
    (directory / "kubernetes.json").write_text('{"job": "train-1"}')
    run = find_run(None, tmp_path)
    assert (run.state, run.error) == ("unknown", "There is no kubectl on the PATH.")


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "running"),
        ([{"type": "Failed", "status": "False"}], "running"),
        ([{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy", "message": "status 2"}], "failed"),
        ([{"type": "Complete", "status": "True"}], "stopped"),
    ],
)
def test_a_jobs_conditions_say_how_its_run_is(conditions: list[dict[str, str]], state: str) -> None:
    assert state_of_job({"status": {"conditions": conditions}}).state == state


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--manifest", "a", "--kubernetes", "a"), "written or given to the cluster"),
        (("--namespace", "learning"), "is that of --kubernetes"),
    ],
)
def test_options_that_say_nothing_together_are_refused(options: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["run", "job.yaml", *options])
    assert isinstance(done.exception, InvalidArgumentError)
    assert said in str(done.exception)
