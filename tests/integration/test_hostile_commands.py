"""10,000 hostile messages on `jobs.commands`: nobody dies, each has exactly one outcome."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path

from tests.support.partitions import own_partition
from tests.support.processes import services_running

from resilin.contracts import events as ev
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.eventlog.kafka import AsyncTopicWriter, KafkaConnection, KafkaLog, KafkaTopic
from resilin.kernel.fencing import Fence

MESSAGES = 10_000
WAIT_SECONDS = 240.0


def valid(cell: str, number: int, **spec: object) -> dict[str, object]:
    return {
        "type": "SubmitJob",
        "cell": cell,
        "command_id": f"c-{number}",
        "job_id": f"j-{number}",
        "job": {
            "apiVersion": "resilin.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": f"j-{number}"},
            "spec": {
                "model": "model",
                "globalBatch": 64,
                "workload": {"totalIterations": 10},
                **spec,
            },
        },
    }


def hostile(rng: random.Random, cell: str, number: int) -> bytes:
    """One message: random bytes, JSON of the wrong shape, hostile sizes, wrong types, repeats."""
    match rng.randrange(12):
        case 0:
            return rng.randbytes(rng.randrange(0, 300))
        case 1:
            return json.dumps(rng.choice([None, True, 3, "x", [], {}, [[]] * 50])).encode()
        case 2:
            return b"[" * rng.randrange(1, 20_000)
        case 3:
            return json.dumps(valid(cell, number, deadline="x" * rng.randrange(1, 50_000))).encode()
        case 4:
            broken = valid(cell, number)
            broken[rng.choice(sorted(broken))] = rng.choice([None, 7, [], {"a": {}}, "", "\x00"])
            return json.dumps(broken).encode()
        case 5:
            return json.dumps(valid(cell, rng.randrange(max(1, number)))).encode()
        case 6:
            return json.dumps(valid("another-cell", number)).encode()
        case 7:
            huge = rng.choice([10**400, -1, 0, 1e308, 2**63])
            return json.dumps(valid(cell, number, globalBatch=huge)).encode()
        case 8:
            whole = json.dumps(valid(cell, number)).encode()
            return whole[: rng.randrange(len(whole))]
        case 9:
            return json.dumps(valid(cell, number, surprise={"deep": [1] * 100})).encode()
        case 10:
            kinds = ["CancelJob", "ChangeDeadline", "RemoveServer", "Unheard", ""]
            return json.dumps(
                {"type": rng.choice(kinds), "cell": cell, "command_id": f"c-{number}",
                 "job_id": f"j-{rng.randrange(max(1, number))}", "deadline_seconds": 1e9}
            ).encode()  # fmt: skip
        case _:
            return json.dumps(valid(cell, number)).encode()


async def produce(connection: KafkaConnection, partition: int, messages: list[bytes]) -> None:
    writer = AsyncTopicWriter(connection, JOBS_COMMANDS.name, partition)
    await writer.start()
    for first in range(0, len(messages), 500):
        await asyncio.gather(*map(writer.produce, messages[first : first + 500]))
    await writer.stop()


def test_hostile_messages_hurt_nobody(bootstrap: str, tmp_path: Path) -> None:
    cell, partition = own_partition(bootstrap)
    connection = KafkaConnection(bootstrap)
    rng = random.Random(20)
    with services_running(
        bootstrap, tmp_path, cell=cell, partition=partition, only=("admission",)
    ) as services:
        services.wait_for_leaders()
        (admission,) = services.of("admission")
        messages = [hostile(rng, cell, number) for number in range(MESSAGES)]
        asyncio.run(produce(connection, partition, messages))
        taken: Counter[int] = Counter()
        until = time.monotonic() + WAIT_SECONDS
        while len(taken) < MESSAGES:
            assert time.monotonic() < until, f"{len(taken)} of {MESSAGES}\n{admission.tail()}"
            assert admission.running, admission.tail()
            time.sleep(1.0)
            with KafkaLog(connection, cell, partition) as log:
                entries = list(log.read())
            fence = Fence()
            facts = [
                event
                for entry in entries
                if fence.admit(entry)
                for event in entry.record.events
                if isinstance(event, ev.FactFromCommand)
            ]
            taken = Counter(fact.source.offset for fact in facts)
        assert admission.starts == 1
        assert admission.running
    with KafkaTopic(connection, DEADLETTER.name, partition) as topic:
        letters = Counter(
            DeadLetter.model_validate_json(message.value).source.offset for message in topic.read()
        )
    assert set(taken) == set(range(MESSAGES))
    assert set(taken.values()) == {1}
    unreadable = {
        fact.source.offset
        for fact in facts
        if isinstance(fact, ev.CommandRejected) and fact.command_id.startswith("unreadable:")
    }
    assert set(letters) == unreadable
    assert set(letters.values()) == {1}
    submitted = Counter(fact.job_id for fact in facts if isinstance(fact, ev.JobSubmitted))
    assert set(submitted.values()) == {1}, "a repeated id is not submitted again"
    assert 2_000 < len(unreadable) < MESSAGES - 500
    assert len(submitted) > 500
