"""The optimal neighborhood kernel's SVM (Liu et al. 2009): what is minimized, and its certificate."""
