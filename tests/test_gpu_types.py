"""The types of the GPUs a run may use, from a driver's directory laid out as the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.running import gpu_types

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def driver(root: Path, *models: str) -> str:
    """A driver's directory with these GPUs, in the order of their addresses."""
    for number, model in enumerate(models):
        place = root / "gpus" / f"0000:{number:02x}:00.0"
        place.mkdir(parents=True)
        uuid = f"GPU-{number}aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
        (place / "information").write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 37\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00\n"
        )
    return str(root)


@pytest.mark.parametrize(
    ("chosen", "models"),
    [
        (None, f"{A100} + {H100}"),
        ("0", H100),
        ("1,2", f"{A100} + {H100}"),
        ("2", A100),
        ("GPU-2aaaaaaa", A100),
        ("GPU-2aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee,0", f"{A100} + {H100}"),
        ("MIG-0a0a", f"{A100} + {H100}"),  # a part of some GPU: which one is not said here
        ("9", f"{A100} + {H100}"),
        ("", "none"),
        ("-1", "none"),
    ],
)
def test_the_gpus_that_are_visible(hostile: Path, chosen: str | None, models: str) -> None:
    assert gpu_types.visible(chosen, driver(hostile, H100, H100, A100)) == models


def test_a_driver_without_a_gpu_that_can_be_read_is_not_none(hostile: Path) -> None:
    assert gpu_types.visible(None, str(hostile)) == ""
    (hostile / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert gpu_types.visible(None, str(hostile)) == ""


def test_a_machine_without_a_driver_has_none_unless_others_are_there(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_types, "OTHERS", (str(hostile / "kfd"),))
    assert gpu_types.visible(None, str(hostile / "absent")) == "none"
    (hostile / "kfd").touch()
    assert gpu_types.visible(None, str(hostile / "absent")) == ""
