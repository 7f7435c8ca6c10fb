"""Parts shared by learners of kernels Q Y Q', Q the smoothest eigenvectors of a neighbor graph."""
