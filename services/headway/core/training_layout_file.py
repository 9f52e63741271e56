"""`layout.yaml`: a training plan of the user's, to be priced and filled in."""

import re
from collections.abc import Sequence

from headway.core.catalogue.located import Located, read_located
from headway.core.training_layout import LayoutStage, OperatorSplit, TrainingLayout

_FIELDS = ("micro_batches", "stages")
_STAGE_FIELDS = ("layers", "modules", "mesh", "axes", "zero", "recompute", "group", "splits")
_ROLES = ("any", "data", "model")
_BOOLS = {"true": True, "false": False}
_ZERO_STAGES = (0, 1, 2, 3)


def read_training_layout(text: str, *, file: str) -> TrainingLayout:
    """InvalidArgumentError names file, line and field."""
    document = read_located(text, file=file)
    _only(document, _FIELDS)
    for name in _FIELDS:
        if name not in document.fields:
            raise document.fault(
                f"lacks '{name}'", hint="Write micro_batches: 8 and stages: [{layers: 0-11, mesh: 1x8}]."
            )
    stages = document.fields["stages"]
    if not stages.items:
        raise stages.fault("is empty", hint="Give one stage at least.")
    return TrainingLayout(
        num_micro_batches=_whole(document.fields["micro_batches"], least=1),
        stages=tuple(_stage(item) for item in stages.items),
        place=_place(stages),
    )


def _stage(item: Located) -> LayoutStage:
    _only(item, _STAGE_FIELDS)
    fields = item.fields
    if "mesh" not in fields or ("layers" in fields) is ("modules" in fields):
        raise item.fault(
            "should have a mesh, and either layers or modules",
            hint="Write {layers: 0-11, mesh: 4x2} or {modules: [layers.0, layers.11], mesh: 4x2}.",
        )
    zero = fields.get("zero")
    recompute = fields.get("recompute")
    return LayoutStage(
        layers=_layers(fields["layers"]) if "layers" in fields else None,
        modules=_pair(fields["modules"]) if "modules" in fields else None,
        mesh=_mesh(fields["mesh"]),
        axes=_axes(fields["axes"]) if "axes" in fields else ("any", "any"),
        zero_stages=_ZERO_STAGES if zero is None else (_whole(zero, least=0, most=_ZERO_STAGES[-1]),),
        recomputes=None if recompute is None else _bool(recompute),
        group=_whole(fields["group"], least=0) if "group" in fields else 0,
        splits=_splits(fields["splits"]) if "splits" in fields else (),
        place=_place(item),
    )


def _layers(field: Located) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", field.text.strip())
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise field.fault(f"should be a run of layers, not '{field.text}'", hint="Write 0-11, or 3 for one layer.")
    return int(found[1]), int(found[2] or found[1])


def _mesh(field: Located) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", field.text.strip())
    if found is None:
        raise field.fault(f"should be devices along two axes, not '{field.text}'", hint="Write 4x2, or 1x8.")
    return int(found[1]), int(found[2])


def _pair(field: Located) -> tuple[str, str]:
    names = [item.text for item in field.items]
    if len(names) != 2:
        raise field.fault("should be the first and the last module", hint="Write [layers.0, layers.11].")
    return names[0], names[1]


def _axes(field: Located) -> tuple[str, str]:
    for item in field.items:
        if item.text not in _ROLES:
            raise item.fault(f"should be {', '.join(_ROLES[:-1])} or {_ROLES[-1]}, not '{item.text}'")
    return _pair(field)


def _splits(field: Located) -> tuple[OperatorSplit, ...]:
    return tuple(
        OperatorSplit(operator=name, loops=_pair(loops), place=_place(loops)) for name, loops in field.fields.items()
    )


def _whole(field: Located, *, least: int, most: int = 10**6) -> int:
    if not field.text.isdecimal() or not least <= int(field.text) <= most:
        raise field.fault(f"should be a whole number from {least} to {most}, not '{field.text}'")
    return int(field.text)


def _bool(field: Located) -> bool:
    if field.text not in _BOOLS:
        raise field.fault(f"should be true or false, not '{field.text}'")
    return _BOOLS[field.text]


def _only(item: Located, names: Sequence[str]) -> None:
    for name, field in item.fields.items():
        if name not in names:
            raise field.fault("is unknown", hint=f"Known are {', '.join(names)}.")


def _place(item: Located) -> str:
    return f"{item.file}, line {item.line}: {item.path}"
