"""What decoders raise among themselves; whoever knows the file's address turns it into Unreadable."""


class Malformed(ValueError):
    """An action or a path that Delta would not write."""
