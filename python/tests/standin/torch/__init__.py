"""A stand-in for what datasets use of torch, where that is not installed: its wheels are half a gigabyte."""

__version__ = ""
