"""Read a queue with Structured Streaming: consumers, epochs and micro-batches."""
