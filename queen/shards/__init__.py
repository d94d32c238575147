"""One installation over several databases (shards): an engine for each, and what finds and combines them (ADR 68)."""
