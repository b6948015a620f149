"""Table formats. Each knows its own metadata and no other format; `registry.py` is the one list of them."""
