"""Files and documents of operators and of model directories."""

import io
import json
import struct
import tarfile
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

import headway.core.catalogue as catalogue_package
from headway.checkpoint.model_directory import read_spec
from headway.cli.plan_file import read_plan
from headway.core.catalogue import built_in_catalogue
from headway.core.catalogue.reader import parse_catalogues
from headway.core.cluster_file import read_cluster_file
from headway.core.graph_file import graph_of
from headway.core.models_file import read_models_file
from headway.core.plan.document import to_plan_document
from headway.core.schedule_file import read_placement
from headway.core.training_cluster_file import read_training_cluster
from headway.core.training_layout_file import read_training_layout
from headway.fetch.archive import unpack
from headway.fetch.registry import files_of_manifest, manifest_of_index
from headway.gateway.tenants import read_tenants
from headway.models.loader import _load_file
from headway.models.weights import Part
from headway.profiler.formats.read import read_profiles
from tests.core.plans import PLACEMENT, SERVING, TRAINING
from tests.fuzz.target import reads_bytes, reads_json
from tests.profiler.exchange import STAGES, slices

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
        {"name": "a", "profile": "bert-1.3b", "count": 3, "share": 0.5, "slo": "200 ms"},
        {"name": "b", "generate": "models/b", "prompt": "100 cv 1", "ttft": "500 ms", "engine": "vllm"},
    ]
}
TASKS: dict[str, Any] = {
    "devices": 2,
    "tasks": [
        {"name": "f0", "devices": [0], "time": 1, "memory": 1},
        {"name": "f1", "devices": [1], "time": 2, "memory": -1, "kind": "backward"},
    ],
    "dependencies": [[0, 1, 0.5]],
    "memory": 4,
}
TENANTS: dict[str, Any] = {
    "tenants": {"gold": {"api_keys": ["a", "b"], "slo_ms": 500, "weight": 3.0}, "bulk": {"max_sequences": 4}}
}
GRAPH: dict[str, Any] = {
    "name": "g",
    "is_training": False,
    "tensors": [
        {"name": "x", "shape": [4, 8], "dtype": "float32", "role": "input"},
        {"name": "w", "shape": [8, 2], "dtype": "float32", "role": "parameter"},
        {"name": "y", "shape": [4, 2], "dtype": "float32", "role": "output"},
    ],
    "operators": [
        {
            "name": "mm",
            "kind": "matmul",
            "target": "aten.mm.default",
            "inputs": ["x", "w"],
            "outputs": ["y"],
            "flops": 128,
            "bytes_read": 192,
            "bytes_written": 32,
            "space": {
                "dims": [{"name": "i", "size": 4}, {"name": "j", "size": 2}, {"name": "k", "size": 8}],
                "reads": [{"tensor": "x", "dims": ["i", "k"]}, {"tensor": "w", "dims": ["k", "j"]}],
                "writes": [{"tensor": "y", "dims": ["i", "j"], "reduced": {"k": "sum"}}],
            },
        }
    ],
    "trained": [],
    "batch": 4,
}
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]},
}
_LENGTHS = (0, 7, 2**31, 2**63, 2**64 - 1)
CATALOGUE = built_in_catalogue()
_ENTRIES = yaml.safe_load((Path(catalogue_package.__file__).parent / "catalogue.yaml").read_text())


@cache
def _directory() -> Path:
    """One for this process, whose files are written over and over."""
    return Path(tempfile.mkdtemp(prefix="headway-fuzz-"))


def _file(name: str, content: bytes) -> Path:
    path = _directory() / name
    path.write_bytes(content)
    return path


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


@reads_json(*map(to_plan_document, (SERVING, PLACEMENT, TRAINING)))
def plans(content: bytes) -> None:
    read_plan(_file("plan.json", content))


@reads_bytes(yaml.safe_dump(to_plan_document(SERVING)).encode())
def plans_in_yaml(content: bytes) -> None:
    read_plan(_file("plan.yaml", content))


@reads_json(CONFIG)
def configurations(content: bytes) -> None:
    read_spec(_file("config.json", content).parent)


@reads_json(CLUSTER)
def clusters(content: bytes) -> None:
    read_cluster_file(_text(content), file="cluster.yaml", catalogue=CATALOGUE)


@reads_json(MODELS)
def models(content: bytes) -> None:
    read_models_file(_text(content), file="models.yaml")


@reads_json(TASKS)
def placements(content: bytes) -> None:
    read_placement(_text(content), file="tasks.json")


@reads_json({"groups": [{"device": "V100-16", "devices_per_node": 8, "num_nodes": 2, "num_ports": 1}]})
def training_clusters(content: bytes) -> None:
    read_training_cluster(_text(content), file="cluster.yaml", catalogue=CATALOGUE)


@reads_json({"micro_batches": 8, "stages": [{"layers": "0-5", "mesh": "1x8"}, {"layers": "6-11", "mesh": "2x4"}]})
def training_layouts(content: bytes) -> None:
    read_training_layout(_text(content), file="layout.yaml")


@reads_json(
    {name: {key: part[key] for key in ("gpu", "GPU", "PCIe 4") if key in part} for name, part in _ENTRIES.items()}
)
def catalogues(content: bytes) -> None:
    parse_catalogues([(_text(content), "own.yaml")])


@reads_bytes(yaml.safe_dump(CLUSTER).encode())
def yaml_files(content: bytes) -> None:
    read_cluster_file(_text(content), file="cluster.yaml", catalogue=CATALOGUE)


@reads_json(TENANTS)
def tenants(content: bytes) -> None:
    read_tenants(_file("tenants.yaml", content))


@reads_json(GRAPH)
def graphs(content: bytes) -> None:
    graph_of(zlib.compress(content))


@reads_bytes(zlib.compress(json.dumps(GRAPH).encode()))
def packed_graphs(content: bytes) -> None:
    graph_of(content)


@reads_json(STAGES, slices())
def profiles(content: bytes) -> None:
    read_profiles(content, hardware="V100-16", created_at_s=1.0)


@reads_json(HEADER)
def headers(content: bytes) -> None:
    """The length of a header is its own, or for every third one that of another."""
    length = len(content) if sum(content[:8]) % 3 else _LENGTHS[sum(content) % len(_LENGTHS)]
    path = _file("model.safetensors", struct.pack("<Q", length) + content + bytes(24))
    list(_load_file(path, {"a": [Part.whole(torch.zeros(2, 2))]}, elsewhere={"b"}))


@reads_bytes(struct.pack("<Q", len(json.dumps(HEADER))) + json.dumps(HEADER).encode() + bytes(24))
def weights(content: bytes) -> None:
    list(_load_file(_file("other.safetensors", content), {"a": [Part.whole(torch.zeros(2, 2))]}, elsewhere={"b"}))


_LAYERS = [
    {
        "mediaType": "application/octet-stream",
        "digest": f"sha256:{'0' * 64}",
        "size": 12,
        "annotations": {"org.opencontainers.image.title": "config.json"},
    },
    {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{'1' * 64}", "size": 99},
]


@reads_json({"layers": _LAYERS}, {"manifests": [{"digest": "sha256:0", "platform": {"os": "linux"}}]})
def manifest(content: bytes) -> object:
    """Of a registry; names of files stay within a directory."""
    if manifest_of_index(content) is not None:
        return None
    files = files_of_manifest(content)
    assert all("/" not in file.name or file.name[0].isdigit() for file in files), files
    return files


def _archive() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("models/config.json", "models/1_Pooling/config.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"{}"))
    return written.getvalue()


@reads_bytes(_archive())
def archive(content: bytes) -> object:
    """Of a model's files: whatever is in it, what is written is in the directory."""
    with tempfile.TemporaryDirectory() as directory:
        inner = Path(directory) / "inner"
        inner.mkdir()
        path = Path(directory) / "archive.tar"
        path.write_bytes(content)
        try:
            unpack(path, inner, below="")
        finally:
            assert {each.name for each in Path(directory).iterdir()} == {"inner", "archive.tar"}
    return None
