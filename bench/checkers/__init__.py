"""The checkers of the specification on a long history: how long each takes, and whether that grows in proportion."""
