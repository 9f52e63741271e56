"""What a placement calls its devices: those of one kind that different engines compute on are not alike."""

from headway.core.engine_kind import EngineKind


def device_name(device: str, engine: EngineKind) -> str:
    """The device's name in the catalogue, and behind a '+' an engine other than Headway's own: 'A100-40+vllm'."""
    return device if engine is EngineKind.HEADWAY else f"{device}+{engine}"


def split_device_name(name: str) -> tuple[str, EngineKind]:
    """The name in the catalogue, and the engine."""
    for engine in EngineKind:
        if engine is not EngineKind.HEADWAY and name.endswith(f"+{engine}"):
            return name.removesuffix(f"+{engine}"), engine
    return name, EngineKind.HEADWAY
