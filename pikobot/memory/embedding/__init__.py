"""Search by meaning: which engine embeds, what is embedded when, and the vector of a question."""
