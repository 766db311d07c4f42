"""What-if: the iteration time and scaling factor at another link speed, worker count or compression.

A discrete-event replay without sleeping or processes, after Zhang et al., arXiv 2006.10103: gradients become ready
at known times (`schedule`), a fusion policy turns them into buckets (`fusion`), each bucket costs what a cost model
says (`costs`, `fit`), buckets go one after another over a serial link (`replay`), over a grid of links, workers and
compression ratios (`sweep`). `answer` draws the conclusions from it.
"""
