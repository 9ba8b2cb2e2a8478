"""Finished jobs, allocations and measured throughput in PostgreSQL."""
