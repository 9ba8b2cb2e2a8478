"""The loan-manager as a process on Kafka: `python -m resilin.loan_manager`."""

from __future__ import annotations

import sys

from resilin.loan_manager.decider import LoanManagerDecider
from resilin.runtime.main import run_service

if __name__ == "__main__":
    sys.exit(run_service(LoanManagerDecider()))
