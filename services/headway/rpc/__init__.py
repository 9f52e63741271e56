"""gRPC plumbing: servers, channels, interceptors, and the conversion between protobuf and core types."""
