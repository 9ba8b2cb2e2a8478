"""The command line `resilin`: simulate, compare, submit and ask questions of a log."""
