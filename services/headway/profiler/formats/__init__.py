"""Reads files of profiles that others made, checks them field by field, and writes them again. Pure."""
