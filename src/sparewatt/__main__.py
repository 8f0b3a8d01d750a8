"""`python -m sparewatt` is the `sparewatt` command."""

from sparewatt.cli.main import main

if __name__ == "__main__":
    main()
