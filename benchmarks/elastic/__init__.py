"""The elastic worker runtime, measured: ``python -m benchmarks.elastic``."""
