"""The service's HTTP API: who may ask (`auth`), what can be asked (`routes`), and how it is served (`server`).

It knows no table, store or scheduler: `backend.AdminBackend` is everything it needs, and the daemon implements it.
"""
