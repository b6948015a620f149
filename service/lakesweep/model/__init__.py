"""The nouns. Pure values that use only the standard library: no I/O, no clock, no third-party import."""
