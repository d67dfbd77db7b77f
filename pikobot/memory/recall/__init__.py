"""Recall mode: answers without a model, made of quotations."""
