"""Digests: what each host adds to the report of its job, small enough that those of a thousand hosts are put together.

A digest holds, of each rank and iteration, how long its phases were and what it waited for; who held whom up in which
iteration; every collective's times; bytes of links by the second; and the findings of ranks and links. No mark and no
packet. Digests that were made of several traces in one go were concluded from together: the account of waiting is then
in them. What was made host by host keeps what others need to explain their waiting (`spans`, `ways`), and is put
together by `alone`.
"""
