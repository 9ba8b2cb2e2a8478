"""Benchmarks: what Resilin's work costs, in CPU seconds of fresh processes."""
