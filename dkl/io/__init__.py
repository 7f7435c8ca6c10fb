"""Readers of files and addresses: arrays, tables, svmlight, zarr packed by others; each error names the file."""
