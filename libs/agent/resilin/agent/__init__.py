"""The node agent: starts, limits, fences and watches the workers of one node."""
