"""Object stores and local disks behind the ports. Start at `registry`; a new store is one file and one line there.

Each store is three classes: a Storage that can only read, a Deleter and a Writer, so that whoever only reads
cannot delete by mistake. Vendor errors are translated here and nowhere else.
"""
