"""Allocation policies, one module each, beside the rule of the paper they come from."""
