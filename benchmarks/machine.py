"""The machine and the software that a figure was measured on."""

import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil

REPORTED_PACKAGES = ("headway", "torch", "grpcio", "tokenizers", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Enough to tell whether two results may be compared.

    Attributes:
        date: UTC, ISO 8601.
        cpu: model name by the operating system.
        load_average: over the last minute before the run; well above zero means a disturbed run.
        versions: of the packages in this environment that matter.
        command: the command line, absolute paths shortened to their names.
    """

    date: str
    cpu: str
    num_cpus: int
    memory_bytes: int
    kernel: str
    python: str
    load_average: float
    versions: dict[str, str]
    command: list[str]


def describe_machine() -> Machine:
    """Describes this machine as it is now."""
    return Machine(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_name(),
        num_cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        python=platform.python_version(),
        load_average=os.getloadavg()[0],
        versions={name: version for name in REPORTED_PACKAGES if (version := installed_version(name))},
        command=[portable(argument) for argument in sys.orig_argv],
    )


def portable(argument: str) -> str:
    """Keeps only the name of an absolute path, as where things lie on one machine says nothing on another."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def installed_version(package: str) -> str:
    """The version in this environment, empty if it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
