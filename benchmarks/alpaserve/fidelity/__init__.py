"""Compares attainment on the live serving plane with the simulator's, request for request the same (section 4.6.1)."""
