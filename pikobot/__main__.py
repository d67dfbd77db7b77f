"""`python -m pikobot`."""

from pikobot.cli.app import main

main()
