"""Measures what weights in int8 cost in accuracy and give in speed and memory."""
