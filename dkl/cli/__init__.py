"""The `dkl` command line; see CONTRIBUTING.md for what belongs here."""
