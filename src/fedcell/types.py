"""Names for the arrays that all parts hand to each other."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Vector: TypeAlias = NDArray[np.float32]
"""A model's parameters, (P,)."""
