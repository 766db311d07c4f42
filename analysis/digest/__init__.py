"""Digests: what each host adds to the report of its job, small enough that those of a thousand hosts are put together.

A digest holds, of each rank and iteration, how long its phases were and what it waited for; every collective's times;
bytes of links by the second; the findings of ranks and links; and what others need to explain their waiting (`spans`,
`ways`). No mark and no packet. Beside digests that were made of several traces in one go lies the report of these.
"""
