"""Stage latencies of AlpaServe: models -> model -> configs -> 'pp2_op4' -> latencies and bytes of each stage."""

from collections.abc import Sequence
from typing import Any

from headway.core.catalogue.figure import Provenance
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id
from headway.profiler.formats.document import Field

_MAX_DIGITS = 9


def recognises(document: Field) -> bool:
    return "models" in document


def read(document: Field, *, hardware: str, created_at_s: float) -> list[StageProfile]:
    """Reads stage profiles. InvalidArgumentError names the path of the field."""
    document.only("meta", "models")
    source = document["meta"]["source"].text() if "meta" in document and "source" in document["meta"] else "imported"
    return [
        _read_config(config, model=model, hardware=hardware, source=source, created_at_s=created_at_s)
        for model, entry in document["models"].fields().items()
        for config in entry.only("configs")["configs"].fields().values()
    ]


def write(profiles: Sequence[StageProfile]) -> dict[str, Any]:
    """Writes a document that `read` takes."""
    models: dict[str, Any] = {}
    for profile in profiles:
        configs = models.setdefault(profile.model, {"configs": {}})["configs"]
        configs[f"pp{profile.pp}_op{profile.op}"] = {
            "pp": profile.pp,
            "op": profile.op,
            "dp": 1,
            "num_gpus": profile.pp * profile.op,
            "weight_mem_bytes": list(profile.weight_bytes),
            "batch": {
                str(batch.batch_size): {
                    "stage_latency_s": list(batch.stage_latency_s),
                    "act_mem_bytes": list(batch.activation_bytes),
                }
                for batch in profile.batches
            },
            "layers_per_stage": list(profile.layers_per_stage) or None,
        }
    return {"meta": {"source": profiles[0].source}, "models": models}


def _read_config(config: Field, *, model: str, hardware: str, source: str, created_at_s: float) -> StageProfile:
    config.only("pp", "op", "dp", "num_gpus", "weight_mem_bytes", "batch", "layers_per_stage")
    pp, op = config["pp"].count(), config["op"].count()
    if not config.path.endswith(f".pp{pp}_op{op}"):
        raise config.fault(f"has pp {pp} and op {op}", hint=f"Name it pp{pp}_op{op}, or correct them.")
    for name, expected in (("dp", 1), ("num_gpus", pp * op)):
        if name in config and config[name].count() != expected:
            raise config[name].fault(f"should be {expected}, not {config[name].value}")
    return StageProfile(
        profile_id=stage_profile_id(model, hardware, pp=pp, op=op),
        model=model,
        hardware=hardware,
        pp=pp,
        op=op,
        weight_bytes=tuple(item.count() for item in config["weight_mem_bytes"].items(length=pp)),
        batches=tuple(_read_batch(size, batch, pp) for size, batch in config["batch"].fields().items()),
        layers_per_stage=_read_layers(config, pp),
        source=source,
        provenance=Provenance.IMPORTED,
        created_at_s=created_at_s,
    )


def _read_batch(size: str, batch: Field, pp: int) -> StageBatch:
    if not size.isdecimal() or len(size) > _MAX_DIGITS or int(size) < 1:
        raise batch.fault("should be named after its batch size")
    batch.only("stage_latency_s", "act_mem_bytes")
    return StageBatch(
        batch_size=int(size),
        stage_latency_s=tuple(item.seconds() for item in batch["stage_latency_s"].items(length=pp)),
        activation_bytes=tuple(item.count(least=0) for item in batch["act_mem_bytes"].items(length=pp)),
    )


def _read_layers(config: Field, pp: int) -> tuple[int, ...]:
    if "layers_per_stage" not in config or config["layers_per_stage"].value is None:
        return ()
    layers = config["layers_per_stage"].items(length=pp)
    return () if all(layer.value is None for layer in layers) else tuple(layer.count() for layer in layers)
