"""The commands, each a module with a click command called `command`; see `demur.cli`."""
