"""Exact tuning on data that are counted, not held; see `demur.tuning.streamed.tune`."""
