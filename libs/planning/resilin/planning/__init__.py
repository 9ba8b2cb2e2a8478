"""Planning algorithms: pure functions from capacity, curves, work and deadlines to shares.

Numbers in, numbers out. Nothing here knows of events, services or logs, so every algorithm
can be read beside its paper, tested and measured without them.
"""
