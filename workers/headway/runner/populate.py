"""Memory that the system backs with pages before it is used: else whoever first writes to a page waits for it."""

import ctypes
import logging
import mmap
import os
import threading
import time
import weakref

from torch import Tensor

log = logging.getLogger(__name__)

_MADV_POPULATE_WRITE = 23  # Linux 5.14
_CHUNK_BYTES = 2 << 20  # page faults of other threads wait no longer than for this
_PAUSES = 4  # for each chunk, as long as it took
_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def populate(memory: Tensor) -> threading.Thread:
    """Starts to back memory of the CPU with pages, whose content stays as it is.

    It takes a fifth of its time, so that others get on.
    It ends early when nobody holds the memory any more, and where the system has no more of it or does not know how:
    pages come with their first use then, as ever.

    Returns:
        The thread that does it.
    """
    thread = threading.Thread(target=_run, args=(weakref.ref(memory),), name="populate", daemon=True)
    thread.start()
    return thread


def _run(memory: "weakref.ref[Tensor]") -> None:
    offset = 0
    while (tensor := memory()) is not None:
        begin = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE + offset
        num_bytes = min(_CHUNK_BYTES, tensor.data_ptr() + tensor.nbytes - begin)
        if num_bytes <= 0:
            return
        start_s = time.perf_counter()
        if _madvise(begin, num_bytes, _MADV_POPULATE_WRITE) != 0:
            log.info("memory is not populated ahead of its use: %s", os.strerror(ctypes.get_errno()))
            return
        del tensor
        offset += num_bytes
        time.sleep(_PAUSES * (time.perf_counter() - start_s))
