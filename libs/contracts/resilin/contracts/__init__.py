"""What crosses process boundaries: the job specification, commands, events and records."""
