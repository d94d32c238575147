"""Long polls by the ten thousand: what they cost while nothing happens, and how soon they hear when something does."""
