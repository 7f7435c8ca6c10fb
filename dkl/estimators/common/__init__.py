"""What all learners share: parameters, validation, progress, what they keep."""
