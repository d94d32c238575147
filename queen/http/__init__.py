"""HTTP: the only package that uses falcon."""
