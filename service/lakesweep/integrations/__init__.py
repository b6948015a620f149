"""Lakesweep in other schedulers: `airflow` and `dagster`. Import the module for your scheduler.

Public, like `lakesweep.api`. Both use `client`, which is private: it runs a table in this process, with the `lakesweep`
command of another Python, or through the API of the service.
"""
