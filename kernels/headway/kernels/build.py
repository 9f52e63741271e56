"""Compiles the CPU kernels: `python -m headway.kernels.build`. Variants that are up to date are left alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.kernels.variants import COMMON_FLAGS, SOURCES, build_stamp, isa_flags, library_path


def find_compiler() -> str:
    """Finds the C++ compiler: $CXX, else g++, else c++.

    Raises:
        FailedPreconditionError: there is none.
    """
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise FailedPreconditionError(
        f"No C++ compiler found (looked for {' and '.join(names)}).",
        hint="Install g++ (Debian, Ubuntu: apt-get install g++), or set CXX to a C++17 compiler.",
    )


def is_current(isa: str) -> bool:
    path = library_path(isa)
    return path.exists() and build_stamp(isa).encode() in path.read_bytes()


def start_compiler(isa: str, output: Path) -> subprocess.Popen[str]:
    command = [
        find_compiler(),
        *COMMON_FLAGS,
        *isa_flags()[isa],
        f'-DHEADWAY_BUILD_STAMP="{build_stamp(isa)}"',
        *(str(path) for path in sorted(SOURCES.glob("*.cpp"))),
        "-o",
        str(output),
    ]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def build() -> list[str]:
    """Compiles the variants that are out of date, side by side, and returns their names.

    A library is replaced at once when it is complete, so processes that have the old one loaded keep it.

    Raises:
        FailedPreconditionError: no compiler, or it failed.
    """
    outputs = {isa: library_path(isa).with_suffix(f".{os.getpid()}.so") for isa in isa_flags() if not is_current(isa)}
    compilers = {isa: start_compiler(isa, output) for isa, output in outputs.items()}
    messages = {isa: compiler.communicate()[1] for isa, compiler in compilers.items()}
    for isa, compiler in compilers.items():
        if compiler.returncode != 0:
            outputs[isa].unlink(missing_ok=True)
            raise FailedPreconditionError(
                f"The compiler failed on the {isa} kernels:\n{messages[isa]}",
                hint="g++ 11 or later is needed; set CXX to choose another.",
            )
        outputs[isa].replace(library_path(isa))
    return list(outputs)


def main() -> int:
    try:
        built = build()
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"CPU kernels: built {', '.join(built)}" if built else "CPU kernels: up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
