"""Capture of hidden states: what runs inside the workers, and the loop in the parent that drives them."""
