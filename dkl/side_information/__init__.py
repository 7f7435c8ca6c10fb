"""Side information to learn from: pairs, triplets, labels and their weights, checked."""
