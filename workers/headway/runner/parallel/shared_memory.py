"""Tensors between ranks of one host, through memory that they share."""

import fcntl
import mmap
import os
import uuid
from contextlib import ExitStack
from ctypes import addressof, c_char
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from headway.kernels.collectives import MAX_RANKS, SegmentCollectives, segment_bytes

_SLOT_BYTES = 256 * 1024
_FILE, _HAS_IT, _HAS_NOT = "file", "yes", "no"


class SharedMemory(SegmentCollectives):
    """A transport over memory that the ranks of one host share; implements `Transport`.

    The memory is a file without a name: whichever way the processes end, nothing is left of it. Each rank holds a lock
    in it, which the kernel drops with the process, so that others need not wait for the deadline.
    """

    def __init__(self, file: int, *, rank: int, size: int, timeout_s: float) -> None:
        """`file`: a descriptor of it, which belongs to this object."""
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        # The mapping has a descriptor of its own, and lives as long as its exported buffer.
        segment = c_char.from_buffer(mmap.mmap(file, segment_bytes(size, slot_bytes=_SLOT_BYTES)))
        super().__init__(
            addressof(segment), rank=rank, size=size, slot_bytes=_SLOT_BYTES, lock_file=file, timeout_s=timeout_s
        )
        self._file = file
        self._segment = segment

    @classmethod
    def meet(cls, store: dist.Store, *, rank: int, size: int, timeout_s: float, join_s: float) -> "SharedMemory | None":
        """Returns when all ranks have come; None, and on all alike, if they cannot share memory.

        Args:
            store: of these ranks only.
            timeout_s: the deadline of a collective.
            join_s: how long to wait for the others.

        Raises:
            RuntimeError: they did not come, or the store has gone.
        """
        file = _create(store, size) if rank == 0 else _find(store, join_s)
        everyone = [str(other) for other in range(size)]
        with ExitStack() as undo:
            found = None if file is None else cls._sit_down(file, rank=rank, size=size, timeout_s=timeout_s)
            if found is not None:
                undo.callback(found.close)
            store.set(str(rank), _HAS_NOT if found is None else _HAS_IT)
            store.wait(everyone, timedelta(seconds=join_s))
            if any(store.get(other) != _HAS_IT.encode() for other in everyone):
                return None
            undo.pop_all()
        return found

    @classmethod
    def _sit_down(cls, file: int, *, rank: int, size: int, timeout_s: float) -> "SharedMemory | None":
        try:
            return cls(file, rank=rank, size=size, timeout_s=timeout_s)
        except OSError:  # a host that has no such locks, or no room for the mapping
            os.close(file)
            return None

    def close(self) -> None:
        """Drops the lock. A rank that still waits for this one sees it gone."""
        os.close(self._file)


def _create(store: dist.Store, size: int) -> int | None:
    """A segment of zeros, told to the others."""
    name = f"headway-{uuid.uuid4().hex}"
    file = None
    if size <= MAX_RANKS:
        file = _allocate(name, segment_bytes(size, slot_bytes=_SLOT_BYTES))
    store.set(_FILE, "" if file is None else f"/proc/{os.getpid()}/fd/{file} {name}")
    return file


def _allocate(name: str, num_bytes: int) -> int | None:
    """Memory that is there from the start: a page that could not be had later would kill the process."""
    try:
        file = os.memfd_create(name)
    except OSError:
        return None
    try:
        os.posix_fallocate(file, 0, num_bytes)
    except OSError:
        os.close(file)
        return None
    return file


def _find(store: dist.Store, join_s: float) -> int | None:
    """The first rank's segment, if this process is on its host and may open it."""
    store.wait([_FILE], timedelta(seconds=join_s))
    path, _, name = store.get(_FILE).decode().partition(" ")
    try:
        is_here = path != "" and str(Path(path).readlink()) == f"/memfd:{name} (deleted)"
        return os.open(path, os.O_RDWR | os.O_CLOEXEC) if is_here else None
    except OSError:
        return None
