"""The outside world: chat model, embeddings, Mem0. The adapters know no store and hold no transaction."""
