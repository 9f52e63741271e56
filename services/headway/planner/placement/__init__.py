"""Many models on few devices: simulated groups, and the search for the placement that meets most SLOs."""
