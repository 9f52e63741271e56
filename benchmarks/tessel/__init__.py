"""Pipeline schedules of any placement, beside the paper's figures."""
