"""Keeping emulated workers small: there may be many on one machine."""

import ctypes


def release_unused() -> None:
    """Gives the operating system back what imports have left unused on the C heap; only glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
