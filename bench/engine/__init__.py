"""The engine on a real PostgreSQL, without HTTP: what it costs beside its calls alone, and beside a whole server."""
