"""Ends what an agent started when the agent itself is gone, whatever ended it.

The agent starts one warden and keeps the other end of its standard input open. When that
closes, by the agent's own doing or because it was killed, the warden ends every process that
bears the agent's mark, with all that they started, and then itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from resilin.agent.marked import end_marked
from resilin.agent.registry import Registry

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Wait for the agent's end, then clean up after it."""
    parser = argparse.ArgumentParser(prog="resilin.agent.warden", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the agent's directory")
    parser.add_argument("--mark", required=True, help="what its processes' marks begin with")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    registry = Registry(options.home)
    end_marked(options.mark, registry.sessions(options.mark), spare=os.getpid())
    registry.forget(options.mark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
