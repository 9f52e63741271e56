"""The engine under everything at once, for as long as one likes."""
