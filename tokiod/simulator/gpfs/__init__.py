"""A simulated GPFS cluster with its mmperfmon command."""
