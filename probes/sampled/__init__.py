"""Flows without BPF: what TCP's own totals say, asked again and again. No rights are needed for one's own jobs."""
