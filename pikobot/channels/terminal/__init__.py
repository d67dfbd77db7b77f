"""The terminal as a channel: a chat with line editing (`chat`), and one request with one answer (`once`).

    typed text ─▶ slash (command or message?) ─▶ commands, forgetting ─▶ status, threads, stop, forget
                                              └▶ answering ─▶ Runner.ask ─▶ events ─▶ a view ─▶ terminal or pipe

`prompt` and `chat` import prompt_toolkit, `markdown` and `live_view` import rich: one request into a pipe loads
neither. Nothing here writes to disk, least of all what was typed. Whatever a model or a stored source wrote goes
through `control_sequences` before it reaches a terminal or a pipe.
"""
