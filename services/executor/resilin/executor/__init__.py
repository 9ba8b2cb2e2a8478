"""The executor service: what the workers are to do, and what they report."""
