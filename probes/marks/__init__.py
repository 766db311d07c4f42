"""The mark probe: points in a training process's life, seen at the entry of its framework's functions."""
