"""The exception for invalid input."""


class InputError(ValueError):
    """Invalid input: a value that cannot be used.

    The message is one sentence that names what is wrong, the value, and what to do. The command line prints it without
    a traceback and exits with status 2.

    Example:
        >>> import fedcell as fc
        >>> fc.Deadline(seconds=-1.0)
        Traceback (most recent call last):
        fedcell.errors.InputError: seconds is -1.0; give the deadline as a positive number of seconds
    """
