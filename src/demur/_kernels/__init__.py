"""Searches over arrays: no objects, no checks, no exceptions."""
