"""Files of profiles that others made: read, checked field by field, and written again. Pure."""
