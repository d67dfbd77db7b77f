"""The only room that knows SQLite.

Functions here take a connection and neither begin nor commit: the operation that called them opened the
transaction (`Database.write`) and names what it does. Rows leave as frozen dataclasses.
"""
