"""Searches as jobs that outlive their callers and this process, each in a child process of its own."""
