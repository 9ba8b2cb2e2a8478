"""The simulation runner: the production deciders under a virtual clock."""
