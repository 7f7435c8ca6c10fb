"""Classification with a kernel learned in a neighborhood (ONK)."""
