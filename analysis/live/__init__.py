"""The last part of a recording that is still growing."""
