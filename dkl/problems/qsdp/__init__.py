"""The quadratic over the psd cone (SQLP, Wu, So, Li & Li 2009): what is minimized, and its certificate."""
