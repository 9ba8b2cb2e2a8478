"""The event-sourcing kernel: deciders, fencing, quiescence. Pure: no I/O, no clock."""
