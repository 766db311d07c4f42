"""Packet captures as a source of tables: what tcpdump, dumpcap or a switch's mirror wrote instead of a probe."""
