"""Generates `proto/gen/headway/v1` from the .proto files: messages, gRPC stubs and, with mypy-protobuf, their types."""

import shutil
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
GEN = ROOT / "gen"


def main() -> int:
    protos = sorted(ROOT.glob("headway/v1/*.proto"))
    newest = max(path.stat().st_mtime for path in (*protos, Path(__file__)))
    stamp = GEN / ".stamp"
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return 0
    shutil.rmtree(GEN, ignore_errors=True)
    GEN.mkdir()
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={GEN}",
        f"--grpc_python_out={GEN}",
    ]
    plugins = Path(sys.executable).parent
    if (plugins / "protoc-gen-mypy").exists():
        arguments += [
            f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
            f"--mypy_out={GEN}",
            f"--mypy_grpc_out={GEN}",
        ]
    status: int = protoc.main([*arguments, *map(str, protos)])
    if status == 0:
        stamp.touch()
    return status


if __name__ == "__main__":
    sys.exit(main())
