"""Amazon S3 and stores that speak its protocol. `store` reads and writes; `deleter` deletes, separate on purpose."""
