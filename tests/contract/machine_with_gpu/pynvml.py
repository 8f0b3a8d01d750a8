"""Stands in for NVML in a process of its own: with this folder on PYTHONPATH a node finds an H200, as recorded."""

from tests.contract.nvml import NVMLError, RecordedNvml

_recorded = RecordedNvml()
__all__ = ["NVMLError"]
globals().update({name: getattr(_recorded, name) for name in dir(_recorded) if name.lower().startswith("nvml")})
