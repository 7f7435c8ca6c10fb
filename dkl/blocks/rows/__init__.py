"""Sources of rows, and passes over them, block by block."""
