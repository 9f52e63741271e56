"""Checks registers and memory of the compiled kernels' threads against their budgets (csrc/cuda/budgets.toml)."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import astuple, dataclass

from headway.kernels.cuda.sources import SOURCES

BUDGETS = SOURCES / "budgets.toml"
_HEADER = """\
# What each kernel may use: registers of a thread, bytes that it spills to memory, and bytes of a stack, where arrays
# lie that are not in registers; for each architecture. A test compares what the compiler reports.
# `python -m headway.kernels.cuda.build --record` writes this file anew; look at the difference before you commit it:
# 65,536 registers of an SM are shared by all threads that it runs.
"""

_KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Resources:
    registers: int
    spilled_bytes: int
    stack_bytes: int


Usage = Mapping[str, Mapping[str, Resources]]
"""By kernel, then architecture."""


def _demangled(names: list[str]) -> list[str]:
    """The name `headway::kernel<types>` without the parameters; names of the CUDA headers' types become ours."""
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    short = (re.sub(r"^void |headway::|\(headway.*$|\(\w*Problem.*$", "", name) for name in result.stdout.splitlines())
    ours = {"__half": "half", "__nv_bfloat16": "bfloat16", "__nv_fp8_e4m3": "fp8", "(int)": ""}
    return [re.sub("|".join(map(re.escape, ours)), lambda found: ours[found[0]], name) for name in short]


def parse_report(report: str) -> Usage:
    """Reads each kernel's resources from the report of `ptxas -v`."""
    names, architectures, resources = [], [], []
    for part in re.split(r"(?=ptxas info\s+: Compiling entry function)", report)[1:]:
        kernel, memory, registers = _KERNEL.search(part), _MEMORY.search(part), _REGISTERS.search(part)
        if kernel is None or memory is None or registers is None:
            raise ValueError(f"not what ptxas -v reports of a kernel:\n{part}")
        names.append(kernel[1])
        architectures.append(kernel[2])
        stack_bytes, stored_bytes, loaded_bytes = map(int, memory.groups())
        resources.append(Resources(int(registers[1]), stored_bytes + loaded_bytes, stack_bytes))
    usage: dict[str, dict[str, Resources]] = {}
    for name, architecture, used in zip(_demangled(names), architectures, resources, strict=True):
        usage.setdefault(name, {})[architecture] = used
    return usage


def read_budgets() -> Usage:
    kernels = tomllib.loads(BUDGETS.read_text())["kernels"]
    return {
        name: {architecture: Resources(*numbers) for architecture, numbers in limits.items()}
        for name, limits in kernels.items()
    }


def write_budgets(usage: Usage) -> None:
    lines = [_HEADER, "[kernels]  # architecture = [registers, spilled bytes, stack bytes]"]
    for name in sorted(usage):
        limits = ", ".join(
            f"{architecture} = {list(astuple(used))}" for architecture, used in sorted(usage[name].items())
        )
        lines.append(f'"{name}" = {{ {limits} }}')
    BUDGETS.write_text("\n".join(lines) + "\n")


def excesses(usage: Usage, budgets: Usage) -> list[str]:
    """Lists kernels that are above their budget, have none, or are gone: one line each."""
    lines = [f"{name}: has a budget, and is not compiled" for name in budgets.keys() - usage.keys()]
    for name, architectures in usage.items():
        for architecture, used in architectures.items():
            limit = budgets.get(name, {}).get(architecture)
            if limit is None:
                lines.append(f"{name} for {architecture}: has no budget")
            elif any(number > most for number, most in zip(astuple(used), astuple(limit), strict=True)):
                lines.append(
                    f"{name} for {architecture}: {used.registers} registers, {used.spilled_bytes} bytes spilled and "
                    f"{used.stack_bytes} of stack, of {limit.registers}, {limit.spilled_bytes} and {limit.stack_bytes}"
                )
    return sorted(lines)
