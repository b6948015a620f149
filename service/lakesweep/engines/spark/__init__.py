"""The engine for tables that outgrow one process: listing, decoding and joining run on Spark.

`session` owns the one Spark session of this process, `pipeline` the DataFrames, `executor` what runs in a Spark
worker, `faults` how errors come back, `engine` the order of it all. Workers only read storage; their results and
the plan's intermediate files go to a scratch directory that driver and executors share.
"""
