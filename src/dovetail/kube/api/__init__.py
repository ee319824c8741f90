"""The API server: who we are to it, requests, lists and watches. Bytes and typed objects; nothing of scheduling.

Needs the extra `live` (aiohttp, httptools); nothing outside this folder and those who use it imports it.
"""
