"""What a text says by its form alone, in English and Chinese: is it a question, and which period does it name. Pure."""
