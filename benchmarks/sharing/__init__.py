"""How much KV memory is saved by sharing blocks."""
