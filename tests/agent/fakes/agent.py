"""An agent in a process of its own, with one job that forks; to be killed by a test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.agent.harness import Node, worker

from resilin.contracts import events as ev


async def main(home: Path) -> None:
    async with Node(home) as node:
        node.submit("a", worker(forks=True))
        node.place("a", 1, 0, 1)
        await node.until(ev.GenerationSwitched)
        (home / "trains").touch()
        await node.during(3600.0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
