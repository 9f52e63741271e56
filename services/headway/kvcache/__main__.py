"""Starts the process `headway-kvcache`."""

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.kvcache.config import KvCacheConfig
from headway.kvcache.prefix import Prefix
from headway.kvcache.service import KvCacheService
from headway.kvcache.servicer import KvCacheServicer
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.store.documents import Documents
from headway.store.schema import PREFIX
from headway.v1 import kvcache_pb2_grpc


async def main(config: KvCacheConfig) -> None:
    async with hosting("kvcache", config) as host:
        prefixes = Documents(host.database, PREFIX, Prefix)
        service = KvCacheService(config, peers=host.peers, prefixes=prefixes)
        kvcache_pb2_grpc.add_KvCacheServiceServicer_to_server(KvCacheServicer(service), host.server)
        host.spawn(service.watch(), name="watch-workers")
        await host.serve()


if __name__ == "__main__":
    run(main(parse_config(KvCacheConfig, prog="headway-kvcache")))
