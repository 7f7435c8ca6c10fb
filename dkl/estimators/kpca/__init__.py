"""Principal components of a kernel, of any number of rows: `KernelPCA`."""
