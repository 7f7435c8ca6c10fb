"""A kernel from must-link and cannot-link pairs (KL-ADMM, Hu & Kwok 2013)."""
