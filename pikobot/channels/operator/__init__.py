"""The operator channel: JSON-RPC over the instance's socket, and the same methods without a server."""
