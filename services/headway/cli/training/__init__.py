"""Training plans at the command line: as tables, as pictures and as documents."""
