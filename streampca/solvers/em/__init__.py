"""EM of factor models: both steps as small least squares, as statistics of a sweep, and the loop."""
