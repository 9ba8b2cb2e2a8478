"""``python -m resilin.cli``: the command line without its script."""

from resilin.cli.main import main

main()
