"""The service's HTTP API: who may call it (`auth`), what it offers (`routes`), and how it is served (`server`).

It knows no table, store or scheduler: `backend.AdminBackend` is everything it needs, and the daemon implements it.
"""
