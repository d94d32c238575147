"""What a message costs in a system that is full, beside an empty one: messages retained, partitions, groups."""
