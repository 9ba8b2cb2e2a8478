"""All services in one process, on a log in a file."""
