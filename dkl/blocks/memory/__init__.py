"""Memory plans, made before any work, and the limits that they are compared with."""
