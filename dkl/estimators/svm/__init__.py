"""Classification with a kernel learned in a neighborhood (ONK, Liu et al. 2009)."""
