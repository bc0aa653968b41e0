"""From a sample and a model to a rule."""
