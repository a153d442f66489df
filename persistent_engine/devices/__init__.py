"""Device profiles as data: what a machine can do, each figure with where it is from."""

from persistent_engine.devices.sheet import DEVICES, DeviceSheet, Figure, Figures, device

__all__ = ["DEVICES", "DeviceSheet", "Figure", "Figures", "device"]
