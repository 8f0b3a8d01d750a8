from __future__ import annotations

import pytest

from sparewatt.policy.gpus import GPU_CLASSES, gpu_class_of, gpu_name


@pytest.mark.parametrize(
    ("text", "name", "gpu_class"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090", "rtx24"),
        ("RTX4090", "rtx-4090", "rtx24"),
        ("rtx_4090", "rtx-4090", "rtx24"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop", "rtx16"),
        ("NVIDIA A100-SXM4-80GB", "a100", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100", "h100"),
        ("NVIDIA H100 NVL", "h100", "h100"),
        ("NVIDIA L40S", "l40s", "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", "l40s"),
        ("NVIDIA RTX A6000", "rtx-a6000", "l40s"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", "l40s"),
        ("Quadro RTX 6000", "rtx-6000", None),
        ("Tesla T4", "t4", "rtx16"),
        ("rtx3090Ti", "rtx-3090-ti", "rtx24"),
        ("rtx4070tisuper", "rtx-4070-ti-super", "rtx16"),
        ("rtx4080super", "rtx-4080-super", "rtx16"),
        ("AMD Instinct MI300X", "mi300x", "h200"),
        ("NVIDIA B200", "b200", "b200"),
        ("NVIDIA A10G", "a10g", "rtx24"),
        ("cpu", "cpu", None),
        ("", "", None),
        ("RTX 9999", "rtx-9999", None),
    ],
)
def test_a_gpu_has_a_name_and_a_class_or_none(text: str, name: str, gpu_class: str | None) -> None:
    assert (gpu_name(text), gpu_class_of(text)) == (name, gpu_class)


def test_classes_are_ordered() -> None:
    order = ["rtx24", "l40s", "a100", "h100", "b200"]
    assert sorted(order, key=GPU_CLASSES.index) == order
