"""The algorithm. It knows ports, never adapters. Start reading in `cycle.py`."""
