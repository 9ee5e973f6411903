"""The batch and the streaming sink."""
