"""Classification with a kernel learned in a neighbourhood (ONK)."""
