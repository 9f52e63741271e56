"""The services that the controller calls. Each call has a channel of its own: they are rare, and outlive a lease."""
