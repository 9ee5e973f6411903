"""Write rows to a queue, as a batch or as a streaming sink."""
