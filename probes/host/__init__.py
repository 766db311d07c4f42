"""The host itself: is it keeping up with its packets and its processes."""
