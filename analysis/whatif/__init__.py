"""What-if: the iteration at other links, worker counts, compressions, bucket sizes, and without a straggler.

A discrete-event replay without sleeping or processes, after Zhang et al., arXiv 2006.10103, of what ranks really did: a
`program` says when each rank posts which collective and waits for which, on a clock that stands still while it waits.
`recording` makes programs of a trace's iterations (`doings`: one process), `fusion` makes one of a log of gradients. A
collective costs what the `transport` says (`fit`) of what the `compression` leaves of it (`prices`); `replay` puts
ranks and links together, `sweep` does so over a grid (`points`), with the interval that the recording's own spread
allows. `ask` is the door, `answer` what is concluded.
"""
