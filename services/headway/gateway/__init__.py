"""The gateway, which clients talk to: the OpenAI API over HTTP, and the inference service over gRPC."""
