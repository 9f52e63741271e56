"""What the prefix cache saves requests that start alike."""
