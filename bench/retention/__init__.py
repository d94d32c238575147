"""What retention removes a second, and what producers and consumers feel of it."""
