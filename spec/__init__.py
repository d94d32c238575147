"""The executable specification: guarantees, and a model of the broker that keeps them. Standard library only."""
