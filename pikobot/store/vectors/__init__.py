"""The exact vector index: float32 rows are the truth, int8 blocks derived from them make the scan fast.

    profiles   vector sets, one for each embedding profile      placing     put and delete vectors
    scan       the k most similar, proven exact                 rebuild     make the blocks again
    eligibility what may be found, decided before ranking       verify      hold the blocks against the rows
    cache      blocks kept in memory between scans

Callers import from the modules. Every function takes a connection; those that write say that the caller holds
the transaction. A vector and its slot change in the same transaction, and so do they disappear.
"""
