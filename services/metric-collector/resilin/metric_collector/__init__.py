"""The metric-collector service: from telemetry to the measurements that plans use."""
