"""What is installed, what became of each drift, what stands in the way, and what to do next."""
