"""Audits while a load test runs: new segments and new lines of journals as streams, judged within bounded windows."""
