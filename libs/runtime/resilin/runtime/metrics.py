"""Metrics of a live service instance, for Prometheus.

:class:`ServiceMetrics` is told what an instance does
(:class:`~resilin.runtime.service.Observer`) and holds both parts of what it exposes:
:class:`ProcessMetrics`, the process itself, and :class:`CellMetrics`, the cell as the log
tells it. What each metric means, and who exposes it, is in
:mod:`~resilin.runtime.metrics_catalogue`.

A scrape reads the numbers as they stand, so it has to happen where they are folded: in the
same thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from resilin.contracts.record import LogEntry, Record
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import dump, load
from resilin.runtime.cell_figures import CellFigures, fold_counted
from resilin.runtime.cell_gauges import gauges
from resilin.runtime.clock import Clock
from resilin.runtime.metrics_catalogue import LEADER, METRICS, PROCESS
from resilin.runtime.metrics_numbers import Numbers, families

__all__ = ["CellMetrics", "ProcessMetrics", "ServiceMetrics"]


class ProcessMetrics:
    """What one process does; it begins at zero with the process.

    Args:
        service: The service.
        instance: The instance's name.
        cell: The cell.
        version: The version of the code.
        clock: The cell's time, which records are stamped with.

    Attributes:
        leads: Whether the instance leads its service.
    """

    def __init__(self, service: str, instance: str, cell: str, version: str, clock: Clock) -> None:
        self._constants = (service, cell)
        self._clock = clock
        self._follows = False
        self._metrics = [metric for metric in METRICS if metric.owner == PROCESS]
        self._numbers = Numbers()
        self._numbers.begin(self._metrics)
        for metric in self._metrics:
            if metric.kind == "gauge" and not metric.labels:
                self._numbers.put(metric.name, value=0.0)
        self._numbers.put("resilin_build_info", instance, version, value=1.0)
        self.leads = False

    def folded(self, entry: LogEntry, *, counted: bool) -> None:
        """Count an entry that was folded, and how old it was unless it was replayed."""
        numbers = self._numbers
        numbers.put("resilin_log_offset", value=entry.offset)
        numbers.add("resilin_log_records_folded_total")
        if self._follows and counted:
            age = self._clock.now_seconds() - entry.record.timestamp
            seconds = max(0.0, self._clock.wall_seconds(age))
            numbers.observe("resilin_event_apply_latency_seconds", value=seconds)

    def appended(self, record: Record, seconds: float) -> None:
        """Count a record that the log has acknowledged after some seconds."""
        self._numbers.add("resilin_log_appends_total", record.nature)
        self._numbers.observe("resilin_log_append_seconds", value=seconds)

    def decided(self, seconds: float) -> None:
        """Note how long the core took to decide."""
        self._numbers.observe("resilin_decide_seconds", value=seconds)

    def replayed(self, records: int, seconds: float) -> None:
        """Note how long folding the log took at the start; from here on it is followed."""
        self._numbers.put("resilin_log_replay_records", value=records)
        self._numbers.put("resilin_log_replay_seconds", value=seconds)
        self._follows = True

    def role(self, *, leading: bool, epoch: int) -> None:
        """Note whether the instance leads, and the service's epoch."""
        self.leads = leading
        self._numbers.put("resilin_leading", value=leading)
        self._numbers.put("resilin_epoch", value=epoch)

    def lag(self, records: int) -> None:
        """Note how many records were read and are not folded yet."""
        self._numbers.put("resilin_log_consumer_lag_records", value=records)

    def snapshot(self, size_bytes: int, seconds: float) -> None:
        """Note that a snapshot was saved."""
        self._numbers.add("resilin_snapshot_total")
        self._numbers.put("resilin_snapshot_bytes", value=size_bytes)
        self._numbers.put("resilin_snapshot_seconds", value=seconds)

    def dead_letter(self) -> None:
        """Count an input that was put aside."""
        self._numbers.add("resilin_dead_letter_records_total")

    def mismatch(self) -> None:
        """Count a decision or a state that came out otherwise when computed again."""
        self._numbers.add("resilin_replay_mismatch_total")

    def collect(self) -> Iterator[Family]:
        """Yield the metrics as they stand."""
        return families(self._metrics, self._numbers, self._constants)


class CellMetrics:
    """The cell as the log tells it, and the part of it that one service shows.

    It keeps a fold of its own, the same in every service: entries go in from the first on,
    or from where a snapshot of it stands.

    Args:
        service: Whose metrics to show.
        per_job: Whether the metric-collector shows series by job.
    """

    def __init__(self, service: str, *, per_job: bool = True) -> None:
        self._service = service
        self._per_job = per_job
        self._folded = Folded(CellFigures(), Fence())
        self._own = [metric for metric in METRICS if metric.owner == service]
        self._leader = [metric for metric in METRICS if metric.owner == LEADER]

    @property
    def figures(self) -> CellFigures:
        """What was folded."""
        return self._folded.state

    @property
    def offset(self) -> int:
        """The offset of the last entry folded, -1 for none."""
        return self._folded.offset

    def fold(self, entry: LogEntry) -> None:
        """Fold the next entry; one that was folded already changes nothing."""
        folded = self._folded
        if entry.offset <= folded.offset:
            return
        folded.offset = entry.offset
        if folded.fence.admit(entry):
            folded.timestamp = max(folded.timestamp, entry.record.timestamp)
            fold_counted(folded.state, entry)
        else:
            fenced, writer = folded.state.fenced, entry.record.service
            fenced[writer] = fenced.get(writer, 0) + 1

    def dump(self) -> bytes:
        """Return a snapshot of the fold."""
        return dump(self._folded, CellFigures)

    def restore(self, payload: bytes) -> None:
        """Go on from where a snapshot stands.

        Raises:
            SnapshotError: If it is of no use: fold from the first entry instead.
        """
        self._folded = load(payload, CellFigures)

    def collect(self) -> Iterator[Family]:
        """Yield the service's own metrics as they stand; none before the first entry."""
        figures = self._folded.state
        if not figures.name:
            return
        shown = Numbers(dict(figures.numbers.values), figures.numbers.histograms)
        # What there was at the last scrape is not there any more: these are made anew.
        for metric in self._own:
            if metric.kind == "gauge":
                shown.values[metric.name] = {}
        for name, labels, value in gauges(figures, self._service, per_job=self._per_job):
            shown.put(name, *labels, value=float(value))
        fenced = float(figures.fenced.get(self._service, 0))
        shown.values["resilin_fenced_writes_total"] = {"": fenced}
        yield from families(self._leader, shown, (self._service, figures.name))
        yield from families(self._own, shown, (figures.name,))


class ServiceMetrics(ProcessMetrics, Collector):
    """All metrics of one instance of one service; the instance's observer.

    The cell's part is exposed while the instance leads, so that every series has one source.

    Args:
        service: The service.
        instance: The instance's name.
        cell: The cell.
        version: The version of the code.
        clock: The cell's time.
        per_job: Whether the metric-collector shows series by job.

    Attributes:
        of_cell: The cell's part.
        registry: What to expose.
    """

    def __init__(
        self,
        service: str,
        *,
        instance: str,
        cell: str,
        version: str,
        clock: Clock,
        per_job: bool = True,
    ) -> None:
        super().__init__(service, instance, cell, version, clock)
        self.of_cell = CellMetrics(service, per_job=per_job)
        # A registry of its own: nothing that other libraries count in this process gets in.
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def folded(self, entry: LogEntry, *, counted: bool) -> None:
        """Count an entry that was folded, for the process and for the cell."""
        super().folded(entry, counted=counted)
        self.of_cell.fold(entry)

    def collect(self) -> Iterator[Family]:
        """Yield what is exposed now."""
        yield from super().collect()
        if self.leads:
            yield from self.of_cell.collect()
