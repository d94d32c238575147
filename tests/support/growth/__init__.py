"""How the cost of the stored procedures grows with what they are given and with what is stored."""
