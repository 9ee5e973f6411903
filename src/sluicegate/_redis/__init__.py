"""What the sync and the asyncio shells have in common: everything but the I/O."""
