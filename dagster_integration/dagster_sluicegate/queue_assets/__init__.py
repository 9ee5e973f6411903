"""A queue as an asset: its observations, its data version, and its checks."""
