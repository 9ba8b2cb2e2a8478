"""A small transformer that learns to write like this project's own documents, by characters.

Written as a loop over ``context()``, as an existing training script would be adapted; the
entry point is ``transformer_text.py:main``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from resilin.elastic import context

LENGTH = 64
ALPHABET = "".join(map(chr, range(32, 127))) + "\n"
"""Other characters are written as the last of these."""


def text() -> Tensor:
    """Return the documents as numbers of characters."""
    root = Path(__file__).resolve().parents[1]
    documents = [root / "README.md", root / "ARCHITECTURE.md", *sorted(root.glob("docs/*.md"))]
    written = "".join(path.read_text(encoding="utf-8") for path in documents if path.is_file())
    known = {character: number for number, character in enumerate(ALPHABET)}
    unknown = len(ALPHABET) - 1
    return torch.tensor([known.get(character, unknown) for character in written])


class Windows:
    """Every window of the text, half a window apart: characters, and the ones that follow."""

    def __init__(self, characters: Tensor) -> None:
        self._characters = characters

    def __len__(self) -> int:
        """Return how many windows there are."""
        return max(1, (len(self._characters) - LENGTH - 1) // (LENGTH // 2))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a window and its successors."""
        start = index * (LENGTH // 2)
        window = self._characters[start : start + LENGTH + 1]
        return window[:-1], window[1:]


class Writer(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.1, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.next = nn.Linear(width, len(ALPHABET))
        hidden = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), diagonal=1)
        self.register_buffer("hidden", hidden)

    def forward(self, characters: Tensor) -> Tensor:
        """Return how likely each character is to follow, at every place."""
        seen = self.characters(characters) + self.places
        guessed: Tensor = self.next(self.layers(seen, mask=self.hidden))
        return guessed


def main() -> None:
    """Train the writer until the job ends."""
    ctx = context()
    torch.manual_seed(0)
    model = Writer(ctx.hp.get("width", 64), ctx.hp.get("layers", 2)).to(ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.hp.get("lr", 1e-3))
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=50)
    ctx.prepare(model, optimizer, warm_up)
    ctx.term_condition(max_epochs=ctx.hp.get("epochs", 5))
    for characters, following in ctx.shards(Windows(text())):
        guessed = model(characters)
        loss = nn.functional.cross_entropy(guessed.flatten(0, 1), following.flatten())
        ctx.backward(loss, following.numel())
        ctx.end_minibatch()
