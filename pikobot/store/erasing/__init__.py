"""What the store does to forget: rules and closure over its tables, tombstones, and bytes outside of rows."""
