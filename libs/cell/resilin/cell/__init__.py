"""The cell: the fold of jobs and servers that every service shares, and what must hold."""
