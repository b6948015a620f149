"""The long-running service and the one place where everything is put together (`app.py`)."""
