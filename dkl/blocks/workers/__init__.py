"""Work on a cluster's workers: waiting, checks, exchanges, functions run by all at once."""
