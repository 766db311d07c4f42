"""Golden recordings: small real traces, and everything that netprof concludes from them and draws."""
