"""Files that runs learn from or are applied to, read and checked."""
