"""The batching thread of a worker process: fuses requests into procedure calls and hands the answers back."""
