"""The command `headway plan schedule`."""
