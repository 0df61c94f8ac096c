"""`python -m credibly.cli`: the command line, where the command itself is not on the path."""

from credibly.cli import main

if __name__ == "__main__":
    main()
