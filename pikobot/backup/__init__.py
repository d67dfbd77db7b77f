"""Backups of an instance: one file each, verified to the last bit, restored without bringing back what was erased."""
