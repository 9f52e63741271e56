"""The file that says what a cluster serves."""

from pathlib import Path

import pytest

from headway.controller.__main__ import read_cluster_deployment
from headway.controller.deployment_file import read_deployment_file
from headway.core.deployment import Deployment
from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError
from headway.core.parallel_config import ParallelConfig
from headway.core.slo import Slo
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import DEPLOYMENT
from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny", "llama")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_becomes_a_deployment(checkpoint: Path, tmp_path: Path) -> None:
    text = (
        f"models: [{{name: chat, path: {checkpoint}, max_model_len: 64, slo: {{ttft_ms: 500, e2e_ms: 2000}}}}]\n"
        "workers: 4\nlimits: {tp: 2, max_num_seqs: 8}\nprofile: false\nanswer_overhead_ms: 5\nqueue_policy: fcfs\n"
    )
    deployment = read_deployment_file(write(tmp_path / "a.yaml", text))
    [model] = deployment.models
    assert (model.name, model.directory, model.max_model_len) == ("chat", str(checkpoint), 64)
    assert model.slo == Slo(ttft_s=0.5, e2e_s=2.0)
    assert (deployment.workers.count, deployment.limits.tp, deployment.limits.max_num_seqs) == (4, 2, 8)
    assert (deployment.profile, deployment.answer_overhead_s, deployment.queue_policy) == (False, 0.005, "fcfs")


def test_each_model_has_its_engine(checkpoint: Path, tmp_path: Path) -> None:
    text = (
        f"models: [{{name: own, path: {checkpoint}}},\n"
        f"  {{name: other, path: {checkpoint}, engine: vllm, engine_args: --enforce-eager}}]\nworkers: 2\n"
    )
    own, other = read_deployment_file(write(tmp_path / "a.yaml", text)).models
    assert (own.engine, own.engine_args) == (EngineKind.HEADWAY, "")
    assert (other.engine, other.engine_args) == (EngineKind.VLLM, "--enforce-eager")


def test_each_model_has_its_parsers(checkpoint: Path, tmp_path: Path) -> None:
    text = f"models: [{{name: own, path: {checkpoint}, tool_parser: hermes, reasoning_parser: qwen3}}]\nworkers: 1\n"
    [model] = read_deployment_file(write(tmp_path / "a.yaml", text)).models
    assert (model.tool_parser, model.reasoning_parser) == ("hermes", "qwen3")
    with pytest.raises(HeadwayError, match="'xml' is unknown") as refused:
        read_deployment_file(write(tmp_path / "a.yaml", text.replace("qwen3", "xml")))
    assert refused.value.field == "deployment.models.reasoning_parser"


def test_each_model_has_its_layout_pools_and_roles(checkpoint: Path, tmp_path: Path) -> None:
    text = (
        f"models: [{{name: wide, path: {checkpoint}, parallelism: {{tp: 2}}, pools: [h100, l4]}},\n"
        f"  {{name: split, path: {checkpoint}, roles: {{prefill: 1, decode: 2}}}}]\nworkers: 5\n"
    )
    wide, split = read_deployment_file(write(tmp_path / "a.yaml", text)).models
    assert (wide.parallel, wide.pools, wide.has_roles) == (ParallelConfig(tp=2), ("h100", "l4"), False)
    assert (split.parallel, split.prefill_workers, split.decode_workers) == (None, 1, 2)


def test_each_model_says_whether_it_may_be_unloaded(checkpoint: Path, tmp_path: Path) -> None:
    text = (
        f"models: [{{name: always, path: {checkpoint}, replicas: {{min: 1, max: 2}}}},\n"
        f"  {{name: rare, path: {checkpoint}, replicas: {{min: 0, idle_seconds: 90}}}},\n"
        f"  {{name: rarer, path: {checkpoint}, replicas: {{min: 0}}}}]\nworkers: 3\n"
    )
    always, rare, rarer = read_deployment_file(write(tmp_path / "a.yaml", text)).models
    assert (always.may_sleep, always.min_replicas, always.max_replicas) == (False, None, 2)
    assert (rare.may_sleep, rare.idle_s) == (True, 90.0)
    assert (rarer.may_sleep, rarer.idle_s) == (True, None)


def test_the_same_file_has_the_same_source_and_another_one_has_not(checkpoint: Path, tmp_path: Path) -> None:
    text = f"models: [{{name: chat, path: {checkpoint}}}]\nworkers: 1\n"
    first = read_deployment_file(write(tmp_path / "a.yaml", text))
    again = read_deployment_file(write(tmp_path / "b.yaml", text))
    other = read_deployment_file(write(tmp_path / "c.yaml", text.replace("workers: 1", "workers: 2")))
    assert first.source == again.source != other.source


def test_emulated_models_need_no_weights_and_are_not_profiled(checkpoint: Path, tmp_path: Path) -> None:
    directory = tmp_path / "bare"
    directory.mkdir()
    for path in checkpoint.glob("*.json"):
        if "safetensors" not in path.name:
            (directory / path.name).write_bytes(path.read_bytes())
    text = f"models: [{{name: chat, path: {directory}}}]\nworkers: 1\n"
    with pytest.raises(HeadwayError, match="safetensors"):
        read_deployment_file(write(tmp_path / "a.yaml", text))
    deployment = read_deployment_file(write(tmp_path / "b.yaml", text + "is_emulated: true\n"))
    assert not deployment.profile


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: [", "not YAML"),
        ("models: []\nworkers: 1\n", "models"),
        ("models: [{name: a, path: /nowhere}]\nworkers: 1\n", "/nowhere"),
        ("models: [{name: a, path: DIR}]\nworkers: 0\n", "workers"),
        ("models: [{name: a, path: DIR, slo: {ttft: 3}}]\nworkers: 1\n", "models.0.slo.ttft"),
        ("models: [{name: a, path: DIR}, {name: a, path: DIR}]\nworkers: 1\n", "two models are called a"),
        ("models: [{name: a, path: DIR, max_model_len: 1000000}]\nworkers: 1\n", "takes sequences of"),
        ("models: [{name: a, path: DIR}]\nworkers: 1\nlimits: {pipeline: 2}\n", "limits.pipeline"),
        ("models: [{name: a, path: DIR, parallelism: {dp: 2}}]\nworkers: 1\n", "models.0.parallelism.dp"),
        ("models: [{name: a, path: DIR, roles: {prefill: 1}}]\nworkers: 1\n", "models.0.roles.decode"),
        (
            "models: [{name: a, path: DIR, roles: {prefill: 1, decode: 1}, parallelism: {tp: 2}}]\nworkers: 1\n",
            "roles and parallelism contradict",
        ),
        (
            "models: [{name: a, path: DIR, roles: {prefill: 1, decode: 1}, replicas: {max: 2}}]\nworkers: 1\n",
            "roles and replicas both",
        ),
        ("models: [{name: a, path: DIR, engine: vllm, parallelism: {pp: 2}}]\nworkers: 1\n", "vllm serves on lone"),
        ("models: [{name: a, path: DIR, replicas: {idle_seconds: 5}}]\nworkers: 1\n", "idle_seconds says when"),
        ("models: [{name: a, path: DIR, engine: vllm-server, replicas: {min: 0}}]\nworkers: 1\n", "all the time"),
    ],
)
def test_faults_are_named(checkpoint: Path, tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        read_deployment_file(write(tmp_path / "a.yaml", text.replace("DIR", str(checkpoint))))
    assert told in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"models: 2020-13-45"])
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(HeadwayError, match=r"a\.yaml is not YAML"):
        read_deployment_file(tmp_path / "a.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="cannot be read"):
        read_deployment_file(tmp_path / "none.yaml")


async def test_another_file_has_all_planned_anew_but_not_models_that_are_resources(
    checkpoint: Path, tmp_path: Path, database: Database
) -> None:
    """A log level that an upgrade changed would otherwise have models placed anew that nobody touched."""
    stored = Documents(database, DEPLOYMENT, Deployment)
    models = f"models: [{{name: chat, path: {checkpoint}}}]\n"
    for text, has_models, stands in (
        (f"{models}workers: 4\n", True, False),
        (f"{models}workers: 4\n", True, True),
        (f"{models}workers: 4\nlog_level: debug\n", True, False),
        ("workers: 4\nlog_level: debug\n", False, True),
    ):
        path = write(tmp_path / "a.yaml", text)
        deployment, is_kept = await read_cluster_deployment(path, stored, has_models=has_models)
        assert is_kept == stands
        assert [model.name for model in deployment.models] == ["chat"]
        assert await stored.get() == deployment
