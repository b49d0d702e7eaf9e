"""Configuration of the tiny Kimi-K2.5 checkpoint, loaded as remote code."""

from __future__ import annotations

from typing import Any

from transformers import DeepseekV3Config, PretrainedConfig


class KimiK25VisionConfig(PretrainedConfig):
    """Sizes of the vision tower and of its projector."""

    model_type = "kimi_k25_vision"

    def __init__(
        self,
        patch_size: int = 14,
        init_pos_emb_height: int = 16,
        init_pos_emb_width: int = 16,
        init_pos_emb_time: int = 4,
        pos_emb_type: str = "divided_fixed",
        num_attention_heads: int = 8,
        num_hidden_layers: int = 2,
        hidden_size: int = 64,
        intermediate_size: int = 128,
        merge_kernel_size: tuple[int, int] = (2, 2),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.init_pos_emb_height = init_pos_emb_height
        self.init_pos_emb_width = init_pos_emb_width
        self.init_pos_emb_time = init_pos_emb_time
        self.pos_emb_type = pos_emb_type
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = num_hidden_layers
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.merge_kernel_size = merge_kernel_size


class KimiK25Config(PretrainedConfig):
    """Wrapper: a DeepSeek-V3 text model and a vision tower."""

    model_type = "kimi_k25"

    def __init__(
        self,
        text_config: Any = None,
        vision_config: Any = None,
        ignore_index: int = -100,
        media_placeholder_token_id: int = 163605,
        pad_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(text_config, PretrainedConfig):
            text_config = DeepseekV3Config(**(text_config or {}))
        if not isinstance(vision_config, PretrainedConfig):
            vision_config = KimiK25VisionConfig(**(vision_config or {}))
        self.text_config = text_config
        self.vision_config = vision_config
        self.ignore_index = ignore_index
        self.media_placeholder_token_id = media_placeholder_token_id
        super().__init__(pad_token_id=pad_token_id, **kwargs)
