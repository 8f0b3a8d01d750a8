"""The `sparewatt` command: one file or folder per noun.

Nothing is imported here, so that a command loads only the modules that it uses. `main` has the table of commands.
"""
