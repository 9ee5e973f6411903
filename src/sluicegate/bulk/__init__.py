"""A bulk publish: a stream of numbered messages, with counts, progress, and errors that say where it stopped."""
