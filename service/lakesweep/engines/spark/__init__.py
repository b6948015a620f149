"""The engine for tables that outgrow one process: listing, decoding and joining run on Spark.

`session` owns the one Spark session of this process, `pipeline` the DataFrames, `executor` the code that runs in a
Spark worker, `errors` how errors come back, `engine` the order of the steps. Workers only read the table's storage;
their results and the plan's intermediate rows go to a scratch place that all of them share (`scratch`, `relations`).
`join_here` joins small tables in this process, and `judge_here` judges what is left of others. `worker_daemon` is the
process that workers on this machine are forked from.
"""
