"""Rows in arrays, counted into cells and along strips."""
