"""What only genotypes need."""
