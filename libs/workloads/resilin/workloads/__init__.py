"""Workloads: job traces, throughput profiles, and generated ones where nothing is at hand.

:func:`read_trace` reads the public traces of ElasticFlow, ITP, Philly, Helios and Pollux and a
plain CSV; :func:`read_profiles` reads throughput profiles into a :class:`CurveBook`;
:func:`generate_trace` and :func:`built_in_curves` need no file at all.
"""

from resilin.workloads.built_in import built_in_curves
from resilin.workloads.curve_book import PACKED, SINGLE_SERVER, SPREAD, CurveBook
from resilin.workloads.generator import PRESETS, GeneratorPreset, generate_preset, generate_trace
from resilin.workloads.gradient_noise import read_gradient_noise
from resilin.workloads.profiles import read_profiles
from resilin.workloads.readers import TRACE_FORMATS, TraceFormat, read_trace
from resilin.workloads.trace import SkippedJobs, Trace, TraceJob, WorkloadError

__all__ = [
    "PACKED",
    "PRESETS",
    "SINGLE_SERVER",
    "SPREAD",
    "TRACE_FORMATS",
    "CurveBook",
    "GeneratorPreset",
    "SkippedJobs",
    "Trace",
    "TraceFormat",
    "TraceJob",
    "WorkloadError",
    "built_in_curves",
    "generate_preset",
    "generate_trace",
    "read_gradient_noise",
    "read_profiles",
    "read_trace",
]
