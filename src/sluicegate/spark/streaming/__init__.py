"""The Structured Streaming source: consumers, epochs and micro-batches."""
