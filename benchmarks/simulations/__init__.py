"""Whether promises hold, on populations whose truth is known."""
