"""Object stores and local disks behind the ports. Start at `registry`; a new store is a package and a line in `kinds`.

Each store has five sides: a Storage that can only read, a Deleter, a Mover (to the trash and back), a Writer, and the
rules of its bucket (versioning, lifecycle). They are separate so that code that only reads cannot delete by mistake.
Vendor errors are translated here and nowhere else."""
