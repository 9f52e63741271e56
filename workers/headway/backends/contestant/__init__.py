"""What takes part in a contest: a placed program that is compiled once and runs when it is its turn."""
