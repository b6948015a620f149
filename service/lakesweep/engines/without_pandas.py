"""Arrow without pandas, for a process that is ours alone. Imports nothing heavy before it is called."""

from __future__ import annotations

import sys


def spare() -> None:
    """Let Arrow look for pandas now, and find none, instead of importing it for the first list it is given.

    Arrow asks so that it may take columns of pandas for arrays, and there are none here, and so that it may give times
    in nanoseconds as pandas' own: without it they come as `datetime`, and one that does not fit raises. It asks by
    itself only once; whatever needs pandas, such as Spark, imports it as ever.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy

    hiding = _Hiding()
    sys.meta_path.insert(0, hiding)
    try:
        pa.array([0.0])  # both of its parts look: the one for what a list is, and the one for what a value is
    finally:
        sys.meta_path.remove(hiding)


class _Hiding:
    """While it stands first among the importer's finders, there is no pandas. (A None in `sys.modules` would say the
    same, but Arrow's compiled code takes it for the module.)"""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise for pandas; leave everything else to the finders behind."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)
