"""Files and documents of operators and of model directories: each is read, or refused with its place."""

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

import headway.core.catalogue as catalogue_package
from headway.core import graph_file
from headway.core.catalogue import built_in_catalogue
from headway.core.catalogue.reader import parse_catalogues
from headway.core.cluster_file import read_cluster_file
from headway.core.errors import InvalidArgumentError
from headway.core.graph_file import graph_of
from headway.core.hf_config import spec_from_config
from headway.core.models_file import read_models_file
from headway.core.plan.document import from_plan_document, to_plan_document
from headway.core.schedule_file import read_placement
from headway.gateway.tenants import read_tenants
from headway.models.loader import _load_file
from headway.models.weights import Part
from tests.core.plans import PLACEMENT, SERVING, TRAINING
from tests.fuzz.cases import answered, fuzzing, garbled, mutated, text_of

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "eos_token_id": [1, 2],
}
CLUSTER: dict[str, Any] = {"kinds": [{"device": "V100-16", "num_devices": 16, "devices_per_node": 8}]}
MODELS: dict[str, Any] = {
    "models": [
        {"name": "a", "profile": "bert-1.3b", "count": 3, "share": 0.5, "slo_ms": 200},
        {"name": "b", "generate": "models/b", "prompt": "lognormal:mean=100,cv=1", "slo_ttft_ms": 500},
    ]
}
TASKS: dict[str, Any] = {
    "devices": 2,
    "tasks": [
        {"name": "f0", "devices": [0], "time": 1, "memory": 1},
        {"name": "f1", "devices": [1], "time": 2, "memory": 1, "after": ["f0"]},
    ],
}
TENANTS: dict[str, Any] = {
    "tenants": {"gold": {"api_keys": ["a", "b"], "slo_ms": 500, "weight": 3.0}, "bulk": {"max_sequences": 4}}
}
SMALLEST_GRAPH: dict[str, Any] = {"graph_id": "g", "operators": [], "tensors": [{"name": "a", "shape": [1, 2]}]}
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]},
}


@pytest.mark.parametrize("plan", [SERVING, PLACEMENT, TRAINING], ids=["serving", "placement", "training"])
@fuzzing
@given(data=st.data())
def test_plans(plan: Any, data: st.DataObject) -> None:
    document = data.draw(mutated(to_plan_document(plan)))
    answered(lambda: from_plan_document(document))


@fuzzing
@given(document=mutated(CONFIG))
def test_configurations_of_models(document: Any) -> None:
    answered(lambda: spec_from_config(document))


@fuzzing
@given(document=mutated(CLUSTER), models=mutated(MODELS))
def test_clusters_and_models(document: Any, models: Any) -> None:
    answered(lambda: read_cluster_file(text_of(document), file="cluster.yaml", catalogue=CATALOGUE))
    answered(lambda: read_models_file(text_of(models), file="models.yaml"))


@fuzzing
@given(document=mutated(TASKS))
def test_placements_of_tasks(document: Any) -> None:
    answered(lambda: read_placement(text_of(document), file="tasks.json"))


CATALOGUE = built_in_catalogue()
_ENTRIES = yaml.safe_load((Path(catalogue_package.__file__).parent / "catalogue.yaml").read_text())


@fuzzing
@given(document=mutated({name: dict(list(part.items())[:2]) for name, part in _ENTRIES.items()}))
def test_catalogues(document: Any) -> None:
    answered(lambda: parse_catalogues([(text_of(document), "own.yaml")]))


@fuzzing
@given(content=garbled(yaml.safe_dump(CLUSTER).encode()))
def test_texts_that_are_hardly_yaml(content: bytes) -> None:
    text = content.decode(errors="replace")
    answered(lambda: read_cluster_file(text, file="cluster.yaml", catalogue=CATALOGUE))
    answered(lambda: parse_catalogues([(text, "own.yaml")]))


@fuzzing
@given(document=mutated(TENANTS))
def test_tenants(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "tenants.yaml"
    path.write_text(text_of(document), errors="surrogatepass")
    answered(lambda: read_tenants(path))


@fuzzing
@given(document=mutated(SMALLEST_GRAPH), content=garbled(zlib.compress(b'{"graph_id": "g"}')))
def test_graphs(document: Any, content: bytes) -> None:
    answered(lambda: graph_of(zlib.compress(text_of(document).encode(errors="surrogatepass"))))
    answered(lambda: graph_of(content))


def test_a_graph_that_unpacks_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_file, "_MAX_BYTES", 1 << 20)
    with pytest.raises(InvalidArgumentError, match="more than 1 MiB"):
        graph_of(zlib.compress(b" " * (2 << 20)))


@fuzzing
@given(document=mutated(HEADER), length=st.sampled_from([None, 0, 7, 2**31, 2**63, 2**64 - 1]))
def test_headers_of_weights(tmp_path_factory: pytest.TempPathFactory, document: Any, length: int | None) -> None:
    header = text_of(document).encode(errors="surrogatepass")
    path = tmp_path_factory.getbasetemp() / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(24))
    weight = torch.zeros(2, 2)
    wanted = {"a": [Part.whole(weight)]}
    answered(lambda: list(_load_file(path, wanted, elsewhere={"b"})))
