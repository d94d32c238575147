"""The contract: every operation as OpenAPI 3.1 has it (ADR 24).

What stands here by hand is what no code says: which operations there are, their parameters, answers and errors. The
schemas of bodies come from the structs that decode and encode them (``schemas``), the levels from the route table, and
the examples from a live server (``examples.json``, written by ``python -m tests.contract``). ``document`` puts them
together.
"""
