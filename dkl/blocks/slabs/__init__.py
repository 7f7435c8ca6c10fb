"""A factored state in slabs, in this process or shared out over workers."""
