"""Collage's networks on the backends of this machine."""
