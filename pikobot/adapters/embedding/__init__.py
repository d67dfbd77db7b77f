"""Text in, unit vectors out, or a failure that says what follows from it.

    vocabulary   profile, answer, failures                  making        from the settings to an embedder
    hosted       any OpenAI-compatible endpoint             answer        its JSON, checked
    local        a model in a child process                 process       that child, seen from here
    e5, sentence_transformers: profile and command          …_worker      what runs in the child (over ``frames``)

Callers import from the modules. Nothing here knows a store, and importing costs nothing: numpy, the client and
the models are loaded with the first text.
"""
