"""Finished jobs, allocations and measured throughput in PostgreSQL."""

from resilin.archive.store import Archive, ArchiveUnavailableError, ArchiveWriter

__all__ = ["Archive", "ArchiveUnavailableError", "ArchiveWriter"]
