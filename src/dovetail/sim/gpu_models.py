"""GPU models and their usual machines. Loaders take missing values from here, and the generator builds clusters."""

from __future__ import annotations

from typing import NamedTuple


class GpuModel(NamedTuple):
    memory_mib: int  # of one GPU
    gpus: int  # in one machine, usually
    cores: int  # of the machine, per GPU
    host_gib: int  # likewise


# Memory as nvidia-smi reports it. G2 and G3 are anonymous in the openb trace; their 32 GiB are our guess.
GPU_MODELS: dict[str, GpuModel] = {
    "T4": GpuModel(15_360, 4, 24, 96),
    "P100": GpuModel(16_384, 2, 16, 64),
    "V100M16": GpuModel(16_384, 8, 8, 32),
    "V100M32": GpuModel(32_768, 8, 12, 96),
    "A10": GpuModel(23_028, 4, 16, 64),
    "A10G": GpuModel(23_028, 4, 12, 48),
    "A30": GpuModel(24_576, 4, 16, 64),
    "L4": GpuModel(23_034, 4, 12, 48),
    "L40S": GpuModel(46_068, 8, 16, 96),
    "A100-PCIE-40GB": GpuModel(40_960, 4, 16, 128),
    "A100-SXM4-40GB": GpuModel(40_960, 8, 12, 128),
    "A100-SXM4-80GB": GpuModel(81_920, 8, 16, 128),
    "H100-80GB-HBM3": GpuModel(81_559, 8, 24, 256),
    "H200": GpuModel(143_771, 8, 24, 256),
    "G2": GpuModel(32_768, 8, 12, 48),
    "G3": GpuModel(32_768, 8, 16, 96),
}
UNKNOWN_MEMORY_MIB = 32_768  # of models that are not in the table
