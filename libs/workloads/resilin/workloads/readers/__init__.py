"""Readers of job traces, one module a format, behind :func:`read_trace`."""

from resilin.workloads.readers.registry import TRACE_FORMATS, TraceFormat, read_trace

__all__ = ["TRACE_FORMATS", "TraceFormat", "read_trace"]
