"""Hostile traces, captures, timelines and logs against every output: no traceback, no hang, at most a gigabyte.

A case is a number: it says what is made, how it is damaged and what is asked of it, so a failure is run again by its
number alone. Most damage is valid Arrow, JSON or pcap with numbers that are extreme, which flipped bits never become.

    PYTHONPATH=tests:examples python tests/fuzz [--cases 100000] [--first 0] [--only NUMBER] [--keep FOLDER]
"""
