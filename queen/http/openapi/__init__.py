"""The OpenAPI 3.1 document of all operations (ADR 24).

It follows from the declarations of the operations (``queen.operations``). The schemas of bodies come from the structs
that decode and encode them (``schemas``), the examples from a live server (``examples.json``, written by
``python -m tests.contract``).
"""
