"""Attainment on the live serving plane beside the simulator's, request for request the same (section 4.6.1)."""
