"""Questions to a log: is it sound, what was the state then, why, and what if."""
