"""Runs as jobs of a batch system: submitted, looked at, cancelled. The work itself is `dkl resume`, wherever the job runs."""
