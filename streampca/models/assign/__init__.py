"""Assignment of samples to classes by their scores."""
