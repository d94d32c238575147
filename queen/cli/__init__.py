"""The command ``queen``: one module for each sub-command."""
