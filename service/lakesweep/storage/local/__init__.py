"""Local disks. `store` reads and writes; `deleter` deletes, separate on purpose."""
