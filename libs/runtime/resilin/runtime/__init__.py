"""Runs one service instance live: settings, clock, logs, health, metrics, leadership."""
