"""A recording session: probes on one side, a trace on the other, and the clock between them."""
