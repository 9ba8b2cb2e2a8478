"""A worker's process: ``python -m resilin.elastic.worker --directory D --worker-id W``.

The line to the leader is there before PyTorch is imported, so the leader knows of the worker,
and of its death, from the first moment. The exit code tells how it ended: 0 in good order,
otherwise see :mod:`.program`.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resilin.elastic import messages as msg
from resilin.elastic.api import ElasticJob, Hyperparameters
from resilin.elastic.context import Context, enter
from resilin.elastic.entrypoint import load_entrypoint
from resilin.elastic.link import Link, leave_process
from resilin.elastic.program import EXIT_USER_CODE, JobProgram

if TYPE_CHECKING:
    from resilin.elastic.runtime import Runtime

__all__ = ["main"]

TRACEBACK_LINES = 12
MEMORY_SIGNS = ("out of memory", "can't allocate memory", "Cannot allocate memory")


def main() -> None:
    """Run one worker; the process ends in here."""
    parser = argparse.ArgumentParser(prog="resilin.elastic.worker", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the job's directory")
    parser.add_argument("--worker-id", required=True, help="this worker's name, never used again")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    program = JobProgram.load(directory)
    link = Link(directory, arguments.worker_id)
    link.start()

    import torch

    from resilin.elastic.runtime import Runtime

    torch.set_num_threads(program.threads)
    runtime = Runtime(program, directory, arguments.worker_id, link)
    try:
        _run(program, runtime)
        raise RuntimeError("the training loop was left before the job was done")
    except Exception as error:
        _tell(error, link)
    leave_process(EXIT_USER_CODE)


def _run(program: JobProgram, runtime: Runtime) -> None:
    named = {"bs": program.global_batch} | dict(program.hyperparameters)
    if program.learning_rate is not None:
        named["lr"] = program.learning_rate
    enter(Context(runtime, Hyperparameters(**named)))
    target = load_entrypoint(program.entrypoint, program.directory)
    if inspect.isclass(target) or inspect.isfunction(target):
        target = target()
    if isinstance(target, ElasticJob):
        _train(target, named, runtime)


def _train(job: ElasticJob, named: dict[str, Any], runtime: Runtime) -> None:
    job.settings.hyperparameters |= named
    runtime.end = job.settings.end
    dataset = job.init_dataset()
    model = job.init_model().to(runtime.device)
    optimizer = job.init_optimizer(model)
    runtime.prepare(model, optimizer, job.init_schedule(optimizer))
    runtime.evaluate = lambda: job.evaluate(model)
    for batch in runtime.batches(dataset, job.collate):
        loss = job.train(batch, model)
        runtime.backward(loss.mean, loss.count)
        runtime.end_minibatch()


def _tell(error: Exception, link: Link) -> None:
    lines = traceback.format_exception(error)
    text = "".join(lines)
    sys.stderr.write(text)
    sys.stderr.flush()
    memory = isinstance(error, MemoryError) or any(sign in str(error) for sign in MEMORY_SIGNS)
    last = text.rstrip().splitlines()[-TRACEBACK_LINES:]
    reason = "OutOfMemory" if memory else "UserCodeFailed"
    link.say_last(msg.UserFailed(reason=reason, message="\n".join(last)))


if __name__ == "__main__":
    main()
