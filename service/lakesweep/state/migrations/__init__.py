"""How the database came to its present shape, step by step. A released step is never edited."""
