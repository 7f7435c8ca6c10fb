"""The quadratic over the psd cone (Wu, So, Li & Li 2009): what is minimized, and its certificate."""
