"""The command ``queen``, one module per subcommand."""
