from tests.servers.fixtures import openai_process, openai_server

__all__ = ["openai_process", "openai_server"]
