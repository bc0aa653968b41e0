"""Samples, models, rules and rates."""
