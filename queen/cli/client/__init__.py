"""Client commands for people and scripts, one module per command. They use the HTTP interface only."""
