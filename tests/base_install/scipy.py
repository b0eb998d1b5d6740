"""First in PYTHONPATH, this hides SciPy, which fedcell does not need; a base install has none.

Where it is installed, Numba imports it with the first compiled function: half a second of every process.
"""

raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
