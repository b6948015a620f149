"""Local disks. `store` reads and writes; `deleter` deletes, apart on purpose."""
