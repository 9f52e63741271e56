"""The families of models in the papers' tables: plain data, no torch."""
