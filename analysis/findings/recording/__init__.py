"""The recording itself: what was lost, and checks that the numbers fit together."""
