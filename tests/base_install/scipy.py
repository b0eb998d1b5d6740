"""Before SciPy in PYTHONPATH: hides it, as fedcell itself does not need it.

Where it is installed, Numba imports it with the first compiled function, half a second of every process.
"""

raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
