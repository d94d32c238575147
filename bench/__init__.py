"""The benchmarks of ``queen bench``."""
