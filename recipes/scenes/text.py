"""A CLIP tokenizer that knows every word of a caption as one token, and a small text encoder."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from recipes.scenes.drawing import caption_words

MAX_TOKENS = 24
_START, _END = "<|startoftext|>", "<|endoftext|>"


def new_tokenizer() -> CLIPTokenizer:
    """The tokenizer: all bytes, so that any text can be read, and a merge for each piece of our words."""
    merges = merges_that_build(caption_words())
    pieces = [symbol + ending for ending in ("", "</w>") for symbol in _byte_symbols()]
    pieces += [left + right for left, right in merges]
    vocabulary = {piece: index for index, piece in enumerate([*pieces, _START, _END])}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_TOKENS)


def merges_that_build(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Byte-pair merges, the commonest pair first, until every word is one token."""
    spelled = [[*word[:-1], word[-1] + "</w>"] for word in words]
    merges = []
    while any(len(pieces) > 1 for pieces in spelled):
        pairs = Counter(pair for pieces in spelled for pair in pairwise(pieces))
        # Ties are broken by spelling: the same words give the same tokenizer everywhere.
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        spelled = [_merged(pieces, best) for pieces in spelled]
    return merges


def new_text_encoder(tokenizer: CLIPTokenizer, width: int = 128, layers: int = 3) -> CLIPTextModel:
    """An untrained text encoder."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModel(config)


def _merged(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    index = 0
    while index < len(pieces):
        if tuple(pieces[index : index + 2]) == pair:
            result.append("".join(pair))
            index += 2
        else:
            result.append(pieces[index])
            index += 1
    return result


def _byte_symbols() -> list[str]:
    # Byte-level BPE writes each byte as a printable character: its own where it has one, else one past 255.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
