"""`headway train`: a model of the user's own, planned and trained by real processes."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.plan_file import write_plan
from headway.cli.train import run
from headway.cli.training_run.job_file import read_training_job
from headway.cli.training_run.preparing import prepare_run
from headway.cli.training_run.runs import find_run, starting
from headway.core.capture import CaptureRequest
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, HeadwayError, InvalidArgumentError
from headway.core.plan.training import SliceSeconds
from headway.core.training_job import DataSettings, TrainingJob
from headway.core.training_run import PROGRESS_FILE, StepReport, TrainingNews
from headway.profiler.capture.capture import capture
from headway.train.progress import open_progress, tell
from tests.cli.conftest import Run
from tests.cli.test_train import FACTORY
from tests.planner.certify.planned import cluster_of, mesh_of, plan_of

JOB = """
model: mine:small
data: {synthetic: true}
batch: 16
steps: 4
micro_batches: 4
checkpoint: {every: 2, best: 1}
validation: {data: {synthetic: true}, every: 1}
optimizer: {name: sgd, rate: 0.01}
precision: bfloat16
deterministic: true
metrics_port: 0
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own code and job, in the directory that commands run in."""
    (tmp_path / "mine.py").write_text(FACTORY)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_is_planned_trained_and_kept(headway: Run, directory: Path) -> None:
    assert json.loads(headway("train", "list", "--json").stdout) == []
    trained = headway("train", "job.yaml", "--json", timeout_s=500)
    assert trained.returncode == 0, trained.stderr
    steps = [json.loads(line)["step"] for line in trained.stdout.splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert all(step["predicted_s"] > 0 and step["mfu"] > 0 and step["validation_loss"] > 0 for step in steps)
    known = json.loads(headway("train", "status", "--json").stdout)
    assert (known["state"], known["step"], known["losses"]) == ("done", 4, [step["loss"] for step in steps])
    kept = Path(known["directory"])
    (times,) = (kept.parents[1] / "operator-times").iterdir()
    assert len(json.loads(times.read_text())["seconds"]) > 20, "its plan is by what its operators were measured to take"
    assert (kept / "checkpoints" / "LATEST").read_text() == "step-00000004"
    assert len(list((kept / "tensorboard").iterdir())) == 1
    traced = headway("train", "trace", "--out", "trace.json", "--figure", "trace.svg")
    assert "step 2, predicted" in traced.stdout, traced.stderr
    assert json.loads((directory / "trace.json").read_text())["otherData"] == {"step": 2}
    again = headway("train", "resume")
    assert (again.returncode, f"{known['run_id']} is done" in again.stderr) == (1, True)


def test_a_plan_with_slices_of_tokens_is_shown_and_nothing_starts(headway: Run, directory: Path) -> None:
    """Of workers that share operators, in order: the last slice of a micro-batch has waited for the first, so stages
    run two of them first."""
    request = CaptureRequest(source="zoo:llama-7b-small", batch=2, train=True)
    graph = capture(request, report=lambda _: None).graph
    assert graph is not None
    whole = plan_of(graph, cluster_of(1, 4), meshes=[mesh_of(1, 2, 1, 2)] * 2, num_micro_batches=2)
    halves = SliceSeconds(forward_s=0.001, backward_s=0.002), SliceSeconds(forward_s=0.001, backward_s=0.002)
    stages = tuple(replace(stage, slices=halves) for stage in whole.stages)
    write_plan(replace(whole, slices=(10, 6), stages=stages), directory / "plan.json")
    job = "model: zoo:llama-7b-small\ndata: {synthetic: true}\nbatch: 4\nsteps: 1\nplan: plan.json\nworkers: 4\n"
    (directory / "job.yaml").write_text(f"{job}zero: 3\n")
    shown = headway("train", "job.yaml", "--dry-run", timeout_s=500)
    assert shown.returncode == 0, shown.stderr
    assert "peak memory" in shown.stdout
    assert "stage 1: each backward pass scatters the gradients of" in " ".join(shown.stdout.split())
    assert "rank 3 FF" in shown.stdout.replace(".", ""), "all slices of a micro-batch before the first comes back"
    assert json.loads(headway("train", "list", "--json").stdout) == []


CAUSAL = """
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        heads = (y.unflatten(-1, (4, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(512, 256), nn.Sequential(*[Block(256) for _ in range(3)])
        self.head = nn.Linear(256, 512)

    def forward(self, tokens, targets):
        return functional.cross_entropy(self.head(self.blocks(self.tokens(tokens))).flatten(0, 1), targets.flatten())


def causal(batch):
    return Model(), tuple(torch.zeros(batch, 128, dtype=torch.long) for _ in range(2))
"""


def test_a_search_for_slices_of_tokens_ends_in_a_run(headway: Run, directory: Path) -> None:
    """One example on three workers, by which nothing in the model divides: only slices keep them all at work."""
    (directory / "mine.py").write_text(CAUSAL)
    job = "model: mine:causal\ndata: {synthetic: true}\nbatch: 1\nsteps: 2\nworkers: 3\nprecision: bfloat16\n"
    (directory / "job.yaml").write_text(f"{job}plan: auto\nmethod: terapipe\nprofile: never\n")
    trained = headway("train", "job.yaml", timeout_s=500)
    assert trained.returncode == 0, trained.stderr
    assert "Planned by the catalogue's figures, as the job says profile: never." in trained.stdout
    assert "each in slices of" in " ".join(trained.stdout.split())
    assert "step 2 of 2: loss 6." in trained.stdout
    assert json.loads(headway("train", "status", "--json").stdout)["state"] == "done"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("colour: red", "unknown field 'colour'"),
        ("schedule: zigzag", "schedule is 'zigzag'"),
        ("precision: float8", "precision is 'float8'"),
        ("method: zero-4", "method is 'zero-4'"),
        ("zero: 4", "zero is 4"),
        ("profile: maybe", "profile is 'maybe'"),
        ("optimizer: {name: lion}", "optimizer.name is 'lion'"),
        ("optimizer: {rate: -1}", "optimizer.rate is -1"),
        ("checkpoint: {keep: 0}", "keep 1 or more"),
        ("validation: null", "checkpoint.best is 1, and nothing is validated"),
        ("validation: {data: {synthetic: true}, batches: 0}", "validation.batches is 0"),
        ("metrics_port: 70000", "metrics_port is 70000"),
        ("data: {}", "one of tensors, tokens and synthetic"),
        ("data: {tensors: gone.safetensors}", "gone.safetensors"),
        ("validation: {data: {tokens: gone.safetensors}}", "gone.safetensors"),
        ("steps: 0", "steps is 0"),
        ("batch: 8.5", "batch should be int, not 8.5"),
        ("restarts: -1", "restarts is -1"),
        ("timeout_s: 0", "timeout_s is 0"),
        ("seed: 20261129011500", "seed is 20261129011500"),
        ("seed: 2026-13-01", "is no YAML: month must be"),
        ("optimizer: {rate: .inf}", "optimizer.rate is inf"),
        ("optimizer: {momentum: .nan}", "optimizer.momentum is nan"),
        ("optimizer: {beta2: 1}", "optimizer.beta2 is 1"),
    ],
)
def test_a_wrong_job_is_refused_by_its_field(change: str, said: str, directory: Path) -> None:
    field = change.partition(":")[0]
    lines = [line for line in JOB.splitlines() if not line.startswith(f"{field}:")]
    (directory / "job.yaml").write_text("\n".join([*lines, change]))
    with pytest.raises(HeadwayError) as refused:
        read_training_job(directory / "job.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"model: 2020-13-45"])
def test_a_file_of_another_kind_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job.yaml").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"job\.yaml is no YAML"):
        read_training_job(tmp_path / "job.yaml")


def test_a_factory_with_examples_of_another_number_is_told(directory: Path) -> None:
    code = "\n\ndef four():\n    return nn.Linear(8, 1), (torch.zeros(4, 8),)\n"
    (directory / "mine.py").write_text(f"import torch\nfrom torch import nn{code}")
    (directory / "job.yaml").write_text(JOB.replace("mine:small", "mine:four"))
    job = read_training_job(directory / "job.yaml")
    with pytest.raises(HeadwayError, match=r"mine:four was asked for 2 examples and gives inputs of \[4, 8\]"):
        asyncio.run(prepare_run(job, deadline_s=300, state_dir=directory))


def test_files_of_data_are_found_from_anywhere(directory: Path) -> None:
    lines = [line for line in JOB.splitlines() if not line.startswith("data:")]
    (directory / "job.yaml").write_text("\n".join([*lines, "data: {tokens: text.safetensors}"]))
    (directory / "text.safetensors").touch()
    job = read_training_job(directory / "job.yaml")
    assert job.data.tokens == str(directory / "text.safetensors")
    assert job.validation is not None
    assert job.validation.data.synthetic


def kept_run(state_dir: Path) -> Path:
    """The directory of a run of three steps."""
    directory = state_dir / "training/train-1"
    directory.mkdir(parents=True)
    job = TrainingJob(model="mine:small", data=DataSettings(synthetic=True), batch=8, steps=3)
    (directory / "job.json").write_text(json.dumps(to_document(job)))
    return directory


def test_a_run_that_was_killed_between_its_last_checkpoint_and_its_word_of_it_is_done(tmp_path: Path) -> None:
    checkpoints = kept_run(tmp_path) / "checkpoints"
    checkpoints.mkdir()
    for step, state in ((2, "stopped"), (3, "done")):
        (checkpoints / "LATEST").write_text(f"step-{step:08}")
        assert find_run(None, tmp_path).state == state


def test_of_two_that_start_a_run_one_is_refused(tmp_path: Path) -> None:
    run_id = kept_run(tmp_path).name
    again = pytest.raises(FailedPreconditionError, match="about to start train-1")
    with starting(run_id, tmp_path), again, starting(run_id, tmp_path):
        pass
    with starting(run_id, tmp_path) as free:
        assert free.state == "stopped"


def test_a_line_of_progress_that_a_full_disk_cut_short_says_nothing(tmp_path: Path) -> None:
    directory = kept_run(tmp_path)
    news = [TrainingNews(step=StepReport(step=step, loss=1, grad_norm=1, seconds=1)) for step in (1, 2, 2, 3)]
    lines = [json.dumps(to_document(each)) for each in news]
    (directory / PROGRESS_FILE).write_text(f"{lines[0]}\n{lines[1][:20]}")
    assert (find_run(None, tmp_path).state, find_run(None, tmp_path).last_step) == ("stopped", 1)
    with open_progress(directory) as progress:
        for each in news[2:]:
            tell([progress], each)
    assert [each.step for each in find_run(None, tmp_path).steps] == [1, 2, 3]


def test_a_run_whose_weights_cannot_be_made_is_not_kept(headway: Run, directory: Path) -> None:
    code = "\n\nif torch.initial_seed() == 1234:\n    raise MemoryError('no room for weights')\n"
    (directory / "mine.py").write_text(FACTORY + code)
    (directory / "job.yaml").write_text(f"{JOB}seed: 1234\nprofile: never\n")
    refused = headway("train", "job.yaml", timeout_s=500)
    assert (refused.returncode, "no room for weights" in refused.stderr) == (1, True), refused.stderr
    assert json.loads(headway("train", "list", "--json").stdout) == []


def test_without_ray_its_package_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FailedPreconditionError, match="Ray is not installed") as refused:
        run(job=directory / "job.yaml", ray="auto")
    assert "headway[ray]" in refused.value.hint
