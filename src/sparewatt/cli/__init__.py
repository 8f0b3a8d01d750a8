"""The `sparewatt` command: one file per noun.

Nothing is imported here, so that a command pays only for what it uses. `main` holds the table of commands.
"""
