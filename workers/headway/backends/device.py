"""What a device has, and what it says of a fault."""

from pathlib import Path

import psutil
import torch

from headway.core.errors import HeadwayError

_CACHE_BYTES = 32 << 20


def fault_of(error: Exception) -> str:
    """What an operator or a backend raised, in a line."""
    if isinstance(error, HeadwayError):
        return error.message
    reason = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {reason}"


def free_bytes(device: torch.device) -> int:
    """Memory that the device has left."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def cache_bytes(device: torch.device) -> int:
    """Returns the size of the device's largest cache."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    known = [int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] for size in sizes if size[-1:] in ("K", "M")]
    return max(known, default=_CACHE_BYTES)
