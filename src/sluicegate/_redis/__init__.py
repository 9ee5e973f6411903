"""Everything that Sluicegate knows about redis-py: clients, pools, connections, errors and version differences."""
