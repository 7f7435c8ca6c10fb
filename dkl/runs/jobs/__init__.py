"""Runs as jobs of a batch system: submitted, inspected, canceled. The work itself is `dkl resume`."""
