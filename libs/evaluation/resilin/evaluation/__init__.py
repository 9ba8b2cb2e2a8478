"""Grids of policies, traces and cluster sizes beside the papers' figures."""
