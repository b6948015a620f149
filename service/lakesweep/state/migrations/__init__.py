"""The steps that bring an older database to the current schema. A released step is never edited."""
