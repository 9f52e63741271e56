"""Times the operators that models consist of, and collectives, on the hardware that this process runs on."""
