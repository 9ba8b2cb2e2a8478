"""The placement service: which GPUs every job's workers run on."""
