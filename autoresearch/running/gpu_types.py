"""The types of this machine's GPUs, from what the NVIDIA driver says in /proc: no library, no program, no wait.

Each GPU has a directory there, named by its PCI address, with a file `information` (README of the Linux driver, chapter
"The /proc interface"). Numbers of GPUs count in the order of the addresses, as NVML's do.
"""

from __future__ import annotations

import os

DRIVER = "/proc/driver/nvidia"
# GPUs of other makers, or of NVIDIA's without that driver (WSL, Jetson): their type is not known here.
OTHERS = ("/dev/kfd", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu")


def visible(chosen: str | None, driver: str = DRIVER) -> str:
    """Return the models of the GPUs that a run may use, sorted and joined by ` + `.

    Args:
        chosen: CUDA_VISIBLE_DEVICES: numbers or UUIDs; None when it is not set.
        driver: the driver's directory in /proc.

    Returns:
        `none` where there is no GPU for the run; empty where the type is not known.
    """
    gpus = _gpus(driver)
    if not gpus:
        return "" if os.path.isdir(driver) or any(map(os.path.exists, OTHERS)) else "none"
    names = [name.strip() for name in chosen.split(",") if name.strip()] if chosen is not None else [""]
    if not names or names[0] == "-1":
        return "none"
    models = {_model(name, gpus) for name in names} - {""}
    return " + ".join(sorted(models or {model for model, _ in gpus}))


def _gpus(driver: str) -> list[tuple[str, str]]:
    """Return (model, UUID) of each GPU."""
    found = []
    root = os.path.join(driver, "gpus")
    for address in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        fields = {}
        try:
            with open(os.path.join(root, address, "information"), encoding="utf-8", errors="replace") as file:
                for line in file:
                    key, _, value = line.partition(":")
                    fields[key.strip()] = " ".join(value.split())
        except OSError:
            continue
        if fields.get("Model"):
            found.append((fields["Model"], fields.get("GPU UUID", "")))
    return found


def _model(name: str, gpus: list[tuple[str, str]]) -> str:
    """Return the model of one GPU by its number or the beginning of its UUID, empty when it is not understood."""
    if name.isascii() and name.isdigit():
        return gpus[int(name)][0] if int(name) < len(gpus) else ""
    return next((model for model, uuid in gpus if name and uuid.startswith(name)), "")
