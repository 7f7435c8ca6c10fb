"""Parts shared by all learners: parameters, validation, progress, stored results."""
