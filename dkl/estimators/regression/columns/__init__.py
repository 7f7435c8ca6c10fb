"""Parts shared by the regressors on kernel columns, baselines among them."""
