"""What the papers' tables say of each family of models: plain data, no torch."""
