"""Estimators and what they share; see CONTRIBUTING.md for what belongs here."""
