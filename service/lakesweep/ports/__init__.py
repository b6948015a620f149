"""What the algorithm needs from the outside world, one port per file. Each adapter passes its port's contract suite.

table       one table, opened: load, plan and commit an expiry, name its references
references  what names files at one state of a table
engine      finds orphans: list, then mark, then judge
storage     list, read and write objects
deleter     delete objects, move them to the trash and back; apart from storage on purpose, and imported by few
store_rules what a bucket does with deleted objects: versioning and lifecycle
state       what survives a restart: runs, plans, the journal, leases, holds
surroundings  what else there is: other tables, holds, files that others use
audit       the record of what a run changed
run         what a run gets from its starter: its fence, its slots, its progress line
clock       where `now` comes from
"""
