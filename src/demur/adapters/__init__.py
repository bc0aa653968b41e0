"""Data and models of other packages."""
