"""The event log: one port, an in-memory log and an on-disk log."""
