"""Services over real sockets, as the tests of their rooms start them."""

from tests.controller.conftest import controlling, deployment, make_model, planner, serve, spawned
from tests.kvcache.conftest import caching

__all__ = ["caching", "controlling", "deployment", "make_model", "planner", "serve", "spawned"]
