"""What learners of kernels Q Y Q' share, Q the smoothest eigenvectors of a neighbour graph."""
