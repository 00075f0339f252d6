"""metricfit inside other libraries: each module imports its own, and nothing here imports a module."""

__all__: list[str] = []
