"""The optimal neighborhood kernel's SVM (ONK, Liu et al. 2009): what is minimized, and its certificate."""
