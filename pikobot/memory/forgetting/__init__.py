"""Forgetting: what a request means, what goes with it, the one commit, and the proof that nothing is left."""
