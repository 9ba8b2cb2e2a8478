"""Reports: a run's log as figures, tables, pages and plots."""
