"""Mem0's additive extraction, run inside the process: sources in, validated candidates or a typed failure out.

    patching             the reviewed files, the patch, and its application with zero fuzz
    loader               imports the patched Mem0 from memory; site-packages stays as it is
    candidates           the vocabulary: batch, candidate, rejection, outcome
    extraction_contract  what a message looks like to the model, and what its answer must look like
    answer               one answer → its elements, or the fault that makes it invalid
    validation           one element → a candidate whose quotes are in their sources, or a reason
    copied               whether a candidate only repeats what is known, beside another quote
    llm, embedder, staging   the parts that Mem0 calls
    engine               one batch through Mem0's own ``Memory.add``

Nothing here knows a store or opens a connection, and Mem0 sees only messages: no system prompt, no recalled
memory, no tool output.
"""
