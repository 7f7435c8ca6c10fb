"""What regressors on kernel columns share, baselines among them."""
