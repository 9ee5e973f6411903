"""`lease_batch`: leases held by the driver, read as a DataFrame."""
