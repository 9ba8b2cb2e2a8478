"""The allocator service: how many workers every job has, by the policy of its cluster."""
