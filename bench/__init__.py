"""The benchmarks behind ``queen bench``; installed under the name ``queen_bench``."""
