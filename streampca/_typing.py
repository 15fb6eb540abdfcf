"""Types that the whole package uses."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
