"""The stability-detector as a process on Kafka: `python -m resilin.stability_detector`."""

from __future__ import annotations

import sys

from resilin.runtime.main import run_service
from resilin.runtime.telemetry_input import telemetry_inputs
from resilin.stability_detector.decider import StabilityDetectorDecider

if __name__ == "__main__":
    decider = StabilityDetectorDecider()
    sys.exit(run_service(decider, telemetry_inputs(decider)))
