"""Runs the engine under every kind of request at once, for as long as one likes."""
