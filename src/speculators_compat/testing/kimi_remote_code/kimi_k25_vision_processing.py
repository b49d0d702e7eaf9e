"""Image processor of the tiny Kimi-K2.5 checkpoint, loaded as remote code."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from transformers.image_processing_utils import BaseImageProcessor, BatchFeature


class KimiK25VisionProcessor(BaseImageProcessor):
    """Cuts images and chunks of video frames into patches.

    A chunk is ``{"type": "image", "image": picture}`` or ``{"type": "video_chunk",
    "video_chunk": [picture, ...]}``; a picture is anything with PIL's ``convert`` and ``resize``.
    """

    model_input_names: ClassVar[list[str]] = ["pixel_values", "grid_thws"]

    def __init__(
        self,
        patch_size: int = 14,
        merge_kernel_size: int = 2,
        max_patches_per_side: int = 16,
        num_frames_per_chunk: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.merge_kernel_size = merge_kernel_size
        self.max_patches_per_side = max_patches_per_side
        self.num_frames_per_chunk = num_frames_per_chunk

    def media_tokens_calculator(self, media: dict[str, Any]) -> int:
        """Number of placeholder tokens that a chunk takes: frames are pooled, patches merged."""
        _, rows, columns = self._grid(media)
        return rows * columns // self.merge_kernel_size**2

    def split_video_chunks(self, video: list[Any]) -> list[dict[str, Any]]:
        """Cut a list of frames into chunks of ``num_frames_per_chunk``."""
        step = self.num_frames_per_chunk
        starts = range(0, len(video), step)
        return [{"type": "video_chunk", "video_chunk": video[at : at + step]} for at in starts]

    def preprocess(self, medias: Any, return_tensors: Any = None, **kwargs: Any) -> BatchFeature:
        """Patches of all chunks, ``[patches, 3, size, size]``, and their grids, ``[chunks, 3]``."""
        chunks = medias if isinstance(medias, list) else [medias]
        grids = [self._grid(chunk) for chunk in chunks]
        patches = [
            self._patches(picture, rows, columns)
            for chunk, (_, rows, columns) in zip(chunks, grids, strict=True)
            for picture in self._pictures(chunk)
        ]
        data = {"pixel_values": torch.cat(patches), "grid_thws": torch.tensor(grids)}
        return BatchFeature(data=data)

    @staticmethod
    def _pictures(media: dict[str, Any]) -> list[Any]:
        return [media["image"]] if media["type"] == "image" else list(media["video_chunk"])

    def _grid(self, media: dict[str, Any]) -> tuple[int, int, int]:
        pictures = self._pictures(media)
        width, height = pictures[0].size
        return len(pictures), self._side(height), self._side(width)

    def _side(self, pixels: int) -> int:
        unit = self.patch_size * self.merge_kernel_size
        patches = max(1, round(pixels / unit)) * self.merge_kernel_size
        return min(patches, self.max_patches_per_side)

    def _patches(self, picture: Any, rows: int, columns: int) -> torch.Tensor:
        size = self.patch_size
        resized = picture.convert("RGB").resize((columns * size, rows * size))
        pixels = torch.from_numpy(np.array(resized)).float() / 127.5 - 1
        grid = pixels.view(rows, size, columns, size, 3).permute(0, 2, 4, 1, 3)
        return grid.reshape(rows * columns, 3, size, size)
