"""Latency tables of TeraPipe: settings -> setting -> latency -> 'batch_slice_context' -> forward, backward, update."""

import re
from collections.abc import Sequence
from typing import Any

from headway.core.catalogue.figure import Provenance
from headway.core.piecewise import PiecewiseLinear
from headway.core.slice_profile import SliceProfile, SliceTable, slice_profile_id
from headway.profiler.fit_slices import fit_context
from headway.profiler.formats.document import Field

_SHAPE = re.compile(r"([1-9]\d{0,8})_([1-9]\d{0,8})_(0|[1-9]\d{0,8})")


def recognises(document: Field) -> bool:
    return "settings" in document and "schema" in document


def read(document: Field, *, hardware: str, created_at_s: float) -> list[SliceProfile]:
    """Reads slice profiles and fits the context term. InvalidArgumentError names the path of the field."""
    document.only("provenance", "schema", "settings")
    source = document["provenance"].text()
    settings = document["settings"].fields()
    return [
        _read_setting(name, setting, hardware=hardware, source=source, created_at_s=created_at_s)
        for name, setting in settings.items()
    ]


def write(profiles: Sequence[SliceProfile]) -> dict[str, Any]:
    """Writes a document that `read` takes."""
    return {
        "provenance": profiles[0].source,
        "schema": {"latency": "'batch_slice_context' -> [forward_s, backward_s, update_s], one layer"},
        "settings": {profile.setting: _write_setting(profile) for profile in profiles},
    }


def _write_setting(profile: SliceProfile) -> dict[str, Any]:
    table = profile.table
    timings = zip(table.forward_s, table.backward_s, table.update_s, strict=True)
    return {
        "model": profile.model,
        "batch": profile.batch,
        "mp": profile.op,
        "pipeline": profile.pp,
        "layers_per_stage": profile.layers_per_stage,
        "seqlen": profile.seq_len,
        "latency": {
            f"{batch}_{slices}_{context}": list(timing)
            for (batch, slices, context), timing in zip(table.shapes(), timings, strict=True)
        },
        "comm": {"tensor_sizes": list(profile.communication.sizes), "mean": list(profile.communication.seconds)},
    }


def _read_setting(name: str, setting: Field, *, hardware: str, source: str, created_at_s: float) -> SliceProfile:
    setting.only("model", "batch", "mp", "pipeline", "layers_per_stage", "seqlen", "latency", "comm")
    model, table = setting["model"].text(), _read_table(setting["latency"])
    return SliceProfile(
        profile_id=slice_profile_id(model, hardware, name),
        model=model,
        setting=name,
        hardware=hardware,
        batch=setting["batch"].count(),
        op=setting["mp"].count(),
        pp=setting["pipeline"].count(),
        layers_per_stage=setting["layers_per_stage"].count(),
        seq_len=setting["seqlen"].count(),
        table=table,
        communication=_read_communication(setting["comm"]),
        forward=fit_context(table, table.forward_s),
        backward=fit_context(table, table.backward_s),
        source=source,
        provenance=Provenance.IMPORTED,
        created_at_s=created_at_s,
    )


def _read_table(latency: Field) -> SliceTable:
    shapes, timings = [], []
    known = latency.fields()
    for name, row in known.items():
        shape = _SHAPE.fullmatch(name)
        if shape is None:
            raise row.fault("should be named 'batch_slice_context', e.g. '1_128_256'")
        batch, slices, context = map(int, shape.groups())
        if context and f"{batch}_{slices}_0" not in known:
            raise row.fault(f"has no '{batch}_{slices}_0' beside it", hint="Add the slice without its context.")
        forward, backward, update = row.items(length=3)
        shapes.append((batch, slices, context))
        timings.append((forward.seconds(), backward.seconds(), update.seconds(may_be_zero=True)))
    batch_size, slice_tokens, context_tokens = zip(*shapes, strict=True)
    forward_s, backward_s, update_s = zip(*timings, strict=True)
    return SliceTable(
        batch_size=batch_size,
        slice_tokens=slice_tokens,
        context_tokens=context_tokens,
        forward_s=forward_s,
        backward_s=backward_s,
        update_s=update_s,
    )


def _read_communication(comm: Field) -> PiecewiseLinear:
    comm.only("tensor_sizes", "mean")
    sizes = tuple(float(item.count()) for item in comm["tensor_sizes"].items())
    seconds = tuple(item.seconds() for item in comm["mean"].items(length=len(sizes)))
    for name, values in (("tensor_sizes", sizes), ("mean", seconds)):
        for number in range(1, len(values)):
            if values[number] < values[number - 1] or (name == "tensor_sizes" and values[number] == values[number - 1]):
                raise comm[name].fault(f"falls at its value number {number}", hint="A larger message takes no less.")
    if not sizes:
        raise comm.fault("has no sizes")
    return PiecewiseLinear(sizes=sizes, seconds=seconds)
