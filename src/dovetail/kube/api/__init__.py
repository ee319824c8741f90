"""The client of the API server: credentials, requests, lists and watches. Bytes and typed objects; no scheduling.

Needs the extra `live` (aiohttp, httptools). Only this folder and the modules that use it import these packages.
"""
