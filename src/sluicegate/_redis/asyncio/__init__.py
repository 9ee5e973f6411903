"""The asyncio half of `sluicegate._redis`; `connection_io` is the source of the synchronous module."""
