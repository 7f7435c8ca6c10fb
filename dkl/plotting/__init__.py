"""Panels of all plots, each a function of plain arrays and matplotlib axes; matplotlib is imported when one is drawn."""
