"""The nouns. Pure values on the standard library only: no I/O, no clock, no third-party import."""
