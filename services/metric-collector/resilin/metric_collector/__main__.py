"""The metric-collector as a process on Kafka: `python -m resilin.metric_collector`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from resilin.archive.feed import feed_archive
from resilin.metric_collector.decider import MetricCollectorDecider
from resilin.runtime.kafka import KafkaLiveLog
from resilin.runtime.main import ServiceProcess, run_service
from resilin.runtime.ports import Input
from resilin.runtime.telemetry_input import telemetry_inputs


async def _inputs(process: ServiceProcess) -> Sequence[Input]:
    settings = process.settings
    if settings.archive_url is not None:
        log = KafkaLiveLog(process.connection, settings.cell, settings.partition)
        process.stack.push_async_callback(log.close)
        url = settings.archive_url.get_secret_value()
        process.background.append(feed_archive(url, log, settings.cell))
    return await telemetry_inputs(_decider)(process)


_decider = MetricCollectorDecider()

if __name__ == "__main__":
    sys.exit(run_service(_decider, _inputs))
