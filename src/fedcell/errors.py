"""The one exception for a user's mistake."""


class InputError(ValueError):
    """Something the caller gave cannot be used.

    The message is one sentence that names what was wrong, its value, and what to do. The command line prints
    it and exits with status 2; it never shows a traceback for it.
    """
