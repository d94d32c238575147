"""Audits during a load test: new segments and new lines of journals as streams, judged within bounded windows."""
