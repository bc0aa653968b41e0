"""The paper's experiments, as users of the public names."""
