"""pikobot: a private assistant that remembers with evidence and can prove that it forgot."""

__version__ = "0.1.0"
