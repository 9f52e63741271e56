"""The bench: programs run on tensors of random numbers and timed, in a process that ends with them."""
