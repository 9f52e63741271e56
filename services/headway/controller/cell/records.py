"""Records of processes that none goes on from: where a container's first process ends, so do the others."""

from headway.controller.process import ProcessRecord


class MemoryRecords:
    """Records of this process's own, by name."""

    def __init__(self) -> None:
        self._records: dict[str, ProcessRecord] = {}

    async def all(self) -> list[ProcessRecord]:
        return list(self._records.values())

    async def put(self, value: ProcessRecord, name: str) -> None:
        self._records[name] = value

    async def delete(self, name: str) -> bool:
        return self._records.pop(name, None) is not None
