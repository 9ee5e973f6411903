"""The definitions of the pipeline: `publish` fills the queue, `gate` opens it, `drain` empties it."""
