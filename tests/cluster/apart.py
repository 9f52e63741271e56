"""Runs a command in namespaces of its own: network, mounts and processes. All that it starts there ends with it.

Usage: python -m tests.cluster.apart COMMAND...; without a command it says by its status whether this machine can.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

DIRECTORY = "HEADWAY_NODE_DIR"
_CGROUPS = Path("/sys/fs/cgroup")
# Of the processors: what ten processes have that are in no group. All pods of a node together would have that of one.
_WEIGHTS = {"cpu.shares": "10240", "cpu.weight": "1000"}
# The first process is a shell, which takes leave of the processes that lose their parents. A kubelet sets what is the
# whole machine's, so it is given files of its own to write to.
_BEGIN = """set -e
ip link set lo up
mount -t tmpfs run /run
mount -t tmpfs log /var/log
for each in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \\
  kernel/keys/root_maxbytes
do
  cat "/proc/sys/$each" > "/run/$(basename "$each")"
  mount --bind "/run/$(basename "$each")" "/proc/sys/$each"
done
set +e
"$@"
exit $?
"""


def unshare(command: Sequence[str], environment: dict[str, str]) -> int:
    """Runs it, and returns its status."""
    apart = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    return subprocess.run([*apart, "sh", "-c", _BEGIN, "sh", *command], env=environment, check=False).returncode


def cgroups_of(name: str) -> list[Path]:
    """The group of that name in each hierarchy: there are several of version 1, and one of version 2."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / name]
    return [path / name for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def main(command: Sequence[str]) -> int:
    if not command:
        return unshare(["mount", "-t", "tmpfs", "tmpfs", "/tmp"], dict(os.environ))
    with tempfile.TemporaryDirectory(prefix="headway-node-") as directory:
        groups = cgroups_of(Path(directory).name)
        for group in groups:
            group.mkdir()
            for name, weight in _WEIGHTS.items():
                if (group / name).exists():
                    (group / name).write_text(weight)
        try:
            return unshare(command, os.environ | {DIRECTORY: directory})
        finally:
            for group in groups:
                _remove(group)


def _remove(group: Path) -> None:
    for path, _, _ in os.walk(group, topdown=False):
        Path(path).rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
