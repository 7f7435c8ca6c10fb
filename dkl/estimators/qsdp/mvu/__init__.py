"""Maximum variance unfolding, plain and colored by labels."""
