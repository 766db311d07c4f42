"""Inference: iterations of a job without framework marks, labelled as inferred and with a confidence.

A job's time jitters, what it exchanges in an iteration does not. So the bursts of its traffic are laid on the axis of
what was moved: there the silences recur exactly (`recurrence`), and the longest of them are where iterations begin
(`boundaries`). `infer` puts that together and judges it.
"""
