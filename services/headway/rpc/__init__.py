"""gRPC plumbing: servers, channels, interceptors, and the conversion between protobuf and core types.

gRPC reads its settings once, when it is imported: the main module of every service imports this package first.
"""

import os

_GRPC_SETTINGS = {
    # gRPC's own threads hand each message on twice before the one that wakes our event loop has it. Without them that
    # one reads the sockets itself: a call takes a third less processor time, and comes sooner.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # uvloop forks to start a child, which execs at once. In between, gRPC would start its threads again, and they would
    # read the parent's connections: calls fail with "Socket closed", or the child crashes.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # What it tells of connections that end is no JSON, and would stand between the lines of our log.
    "GRPC_VERBOSITY": "ERROR",
}

for _name, _value in _GRPC_SETTINGS.items():
    os.environ.setdefault(_name, _value)
