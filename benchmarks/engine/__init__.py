"""The engine without its services: datasets, clocks, runners and the loop that drives them."""
