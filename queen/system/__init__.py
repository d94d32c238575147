"""What the operating system offers: child processes, signals, memory, open files."""
