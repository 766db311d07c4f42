"""netprof: is the network the bottleneck of a running training job, and if not, what does the link wait for?"""

__version__ = "0.1.0"
