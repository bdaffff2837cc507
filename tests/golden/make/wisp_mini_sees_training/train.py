"""Train Wisp Mini Sees on one GPU: a new encoder, and Wisp Mini, which learns to read it and goes on with its own texts.

    python train.py --mini mini.npz --text DIR --out weights --minutes 8

`--mini`: Wisp Mini's weights, as export.py's `weights` writes them. `--text`: the folder of the scripts that Wisp Mini was
trained with (generate_data.py, tokenizer.json): half of each step is its own conversations, so that it forgets none.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import network
import pictures

LENGTH = 224  # tokens of a conversation about a picture
ROW = 2048  # tokens of a row of Wisp Mini's own conversations
PICTURE = -1  # in the ids, a token of the picture
SAID, LONG = 1 << 15, 1 << 14  # flags of a token in the rows: the model is to say it; it belongs to a long text
DEFAULT_SYSTEM = "You are Wisp Mini, a small and helpful assistant."
SYSTEMS = (DEFAULT_SYSTEM, DEFAULT_SYSTEM, DEFAULT_SYSTEM, "You are a helpful assistant.", "You are Wisp Mini.")
END = "<|im_end|>\n"


def conversation(rng: Random, encode: Any, turns: list[pictures.Turn]) -> tuple[list[int], list[bool]]:
    """The ids of a chat about a picture, and which of them the model is to say. Texts beside it are encoded alone."""
    ids: list[int] = []
    said: list[bool] = []

    def add(text: str, say: bool = False) -> None:
        found = encode(text)
        ids.extend(found)
        said.extend([say] * len(found))

    begin = f"<|im_start|>system\n{rng.choice(SYSTEMS)}{END}<|im_start|>user\n"
    for i, (question, answer) in enumerate(turns):
        question = question if rng.random() < 0.8 else question.lower() if rng.random() < 0.5 else question.rstrip("?.")
        before = rng.random() < 0.6
        if i:
            add(f"\n<|im_start|>user\n{question}{END}<|im_start|>assistant\n")
        else:
            add(begin if before else begin + question + rng.choice(["", "\n"]))
            ids.extend([PICTURE] * network.TOKENS)
            said.extend([False] * network.TOKENS)
            add((rng.choice(["", "", "\n"]) + question if before else "") + f"{END}<|im_start|>assistant\n")
        add(f"{answer}<|im_end|>", say=True)
    return ids, said


def draw_for_ever(folder: str, tokenizer: str, seed: int, size: int = 512) -> None:
    """Write files of drawings and conversations until the process is ended."""
    from tokenizers import Tokenizer

    os.nice(5)
    torch.set_num_threads(1)
    rng, encoder = Random(seed), Tokenizer.from_file(tokenizer)
    for number in range(1 << 30):
        images = np.zeros((size, pictures.SIDE, pictures.SIDE, 3), np.uint8)
        ids, said = np.zeros((size, LENGTH), np.int16), np.zeros((size, LENGTH), np.bool_)
        for i in range(size):
            _, made = pictures.drawing(rng)
            tokens, says = conversation(rng, lambda text: encoder.encode(text).ids, made.turns)
            images[i] = np.asarray(made.image)
            ids[i, : len(tokens)], said[i, : len(says)] = tokens[:LENGTH], says[:LENGTH]
        path = f"{folder}/drawn-{seed:05}-{number:06}"
        np.savez(path + ".tmp.npz", images=images, ids=ids, said=said)
        os.rename(path + ".tmp.npz", path + ".npz")


def talk_for_ever(folder: str, scripts: str, seed: int) -> None:
    """Write files of Wisp Mini's own conversations until the process is ended."""
    os.nice(5)
    sys.path.insert(0, scripts)
    import generate_data  # type: ignore[import-not-found]

    generate_data.write_shards(folder, f"{scripts}/tokenizer.json", seed, None, rows=128)


class Samples:
    """What the processes have written, on the GPU; the newest is used first, the oldest is replaced."""

    def __init__(self, folder: str, capacity: int) -> None:
        self.folder, self.capacity = Path(folder), capacity
        self.images = torch.empty(capacity, pictures.SIDE, pictures.SIDE, 3, dtype=torch.uint8, device="cuda")
        self.ids = torch.empty(capacity, LENGTH, dtype=torch.int16, device="cuda")
        self.said = torch.empty(capacity, LENGTH, dtype=torch.bool, device="cuda")
        self.rows = torch.empty(40_000, ROW, dtype=torch.int16, device="cuda")
        self.drawn = self.talked = self.fresh = self.fresh_rows = 0

    def refresh(self) -> None:
        """Take in some files."""
        for path in sorted(self.folder.glob("drawn-*[0-9].npz"))[:12]:
            with np.load(path) as data:
                at = self.drawn % self.capacity
                for name in ("images", "ids", "said"):
                    getattr(self, name)[at : at + len(data[name])] = torch.from_numpy(data[name]).cuda()
                self.drawn += len(data["ids"])
            path.unlink()
        for path in sorted(self.folder.glob("shard-*[0-9].npy"))[:4]:
            data = torch.from_numpy(np.load(path).view(np.int16)).cuda()
            at = self.talked % (len(self.rows) - len(data))
            self.rows[at : at + len(data)] = data
            self.talked += len(data)
            path.unlink()

    def pictures(self, n: int) -> Any:
        """Indices of drawings: new ones as long as there are some."""
        have = min(self.drawn, self.capacity)
        if self.fresh + n <= self.drawn:
            self.fresh = max(self.fresh, self.drawn - self.capacity)
            found = torch.arange(self.fresh, self.fresh + n, device="cuda") % self.capacity
            self.fresh += n
            return found
        return torch.randint(have, (n,), device="cuda")


def losses(logits: Any, target: Any, weight: Any) -> Any:
    found = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
    return (found * weight.flatten()).sum() / weight.sum().clamp(min=1)


class Trainer:
    """Both networks and the loss of a step."""

    def __init__(self, mini: str) -> None:
        with np.load(mini) as data:
            weights = {name: torch.from_numpy(data[name].astype(np.float32)) for name in data.files}
        self.encoder, self.decoder = network.Encoder().cuda(), network.Decoder(weights).cuda()
        self.encode, self.decode = torch.compile(self.encoder), torch.compile(self.decoder)

    def compile(self, pictures_per_step: int, rows: int) -> None:
        """Compile both networks, while no other process needs the processor."""
        with torch.autocast("cuda", torch.bfloat16):
            images = torch.zeros(pictures_per_step, pictures.SIDE, pictures.SIDE, 3, dtype=torch.uint8, device="cuda")
            x = self.decoder.embed(torch.zeros(pictures_per_step, LENGTH, dtype=torch.long, device="cuda"))
            (self.encode(images).sum() + self.decode(x).sum()).backward()
            row = self.decoder.embed(torch.zeros(rows, ROW, dtype=torch.long, device="cuda"))
            self.decode(row, torch.ones(rows, 1, ROW, ROW, dtype=torch.bool, device="cuda").tril()).sum().backward()
        for network_of in (self.encoder, self.decoder):
            network_of.zero_grad(set_to_none=True)

    @contextmanager
    def rounded(self, wanted: bool) -> Iterator[None]:
        """Hold the decoder's matrices as Q4_0 does, but for the embeddings; gradients are those at the rounded values."""
        if not wanted:
            yield
            return
        matrices = [p.data for name, p in self.decoder.named().items() if p.ndim > 1 and "embd" not in name]
        whole = torch.cat([m.reshape(-1) for m in matrices])
        for held, near in zip(matrices, network.q4_0(whole).split([m.numel() for m in matrices]), strict=True):
            held.copy_(near.view_as(held))
        yield
        for held, exact in zip(matrices, whole.split([m.numel() for m in matrices]), strict=True):
            held.copy_(exact.view_as(held))

    def about_pictures(self, samples: Samples, at: Any) -> Any:
        ids, said = samples.ids[at].long(), samples.said[at]
        x = self.decoder.embed(ids.clamp(min=0))
        x = x.masked_scatter((ids == PICTURE)[..., None], self.encode(samples.images[at]).to(x.dtype))
        logits = self.decode(x)
        return losses(logits[:, :-1], ids[:, 1:].clamp(min=0), said[:, 1:].float())

    def about_text(self, rows: Any, end: int) -> Any:
        rows = rows.int()
        ids = (rows & 0x0FFF).long()
        ends = (ids == end).int()
        document = ends.cumsum(1) - ends
        mask = (document[:, None, :, None] == document[:, None, None, :]).tril()
        weight = torch.where(rows & LONG != 0, 0.5, 1.0) * torch.where(rows & SAID != 0, 1.0, 0.1) * (ids != end)
        weight = weight[:, 1:] * (document[:, 1:] == document[:, :-1])
        logits = self.decode(self.decoder.embed(ids), mask)
        return losses(logits[:, :-1], ids[:, 1:], weight)


def main() -> None:
    """Train, and write the weights of both networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--pictures", type=int, default=384, help="conversations about pictures in a step")
    parser.add_argument("--rows", type=int, default=8, help="rows of other conversations in a step")
    args = parser.parse_args()
    begun, folder = time.time(), f"/dev/shm/drawn-{os.getpid()}"
    os.makedirs(folder)
    context = multiprocessing.get_context("spawn")
    tokenizer = f"{args.text}/tokenizer.json"
    jobs = [context.Process(target=draw_for_ever, args=(folder, tokenizer, seed), daemon=True) for seed in range(11)]
    jobs += [context.Process(target=talk_for_ever, args=(folder, args.text, 700 + n), daemon=True) for n in range(4)]
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    trainer, samples = Trainer(args.mini), Samples(folder, 150 * 1024)
    trainer.compile(args.pictures, args.rows)
    print(f"compiled after {time.time() - begun:.0f} s", flush=True)
    for job in jobs:
        job.start()
    end = json.loads(Path(tokenizer).read_text())["model"]["vocab"]["<|endoftext|>"]
    matrices = [p for p in trainer.encoder.parameters() if p.ndim > 1]
    others = [p for p in trainer.encoder.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "rate": 1.5e-3, "weight_decay": 0.05},
        {"params": others, "rate": 1.5e-3, "weight_decay": 0.0},
        {"params": list(trainer.decoder.parameters()), "rate": 3e-4, "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), fused=True)
    while samples.drawn < 4 * args.pictures or samples.talked < 4 * args.rows:
        time.sleep(0.2)
        samples.refresh()
    step, seen, log = 0, [0.0, 0.0], []
    rng = np.random.default_rng(1)
    while (progress := (time.time() - begun) / (60 * args.minutes)) < 1:
        if step % 4 == 0:
            samples.refresh()
        rounded = bool(progress > 0.6 and rng.random() < 0.75)
        rate = min(1, (step + 1) / 300) * (1 if progress < 0.3 else max(0.01, (1 - progress) / 0.7))
        for group in adam.param_groups:
            group["lr"] = group["rate"] * rate
        with trainer.rounded(rounded):
            with torch.autocast("cuda", torch.bfloat16):
                of_pictures = trainer.about_pictures(samples, samples.pictures(args.pictures))
                some = torch.randint(min(samples.talked, len(samples.rows) - 128), (args.rows,), device="cuda")
                of_text = trainer.about_text(samples.rows[some], end)
            (of_pictures + 0.5 * of_text).backward()
        torch.nn.utils.clip_grad_norm_([p for g in groups for p in g["params"]], 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        if step % 200 == 0 or step in (1, 20):
            seen = [round(of_pictures.item(), 4), round(of_text.item(), 4)]
            line = {
                "step": step,
                "seconds": round(time.time() - begun),
                "pictures": seen[0],
                "text": seen[1],
                "drawn": samples.drawn,
                "rate": round(rate, 3),
            }
            log.append(line)
            print(json.dumps(line), flush=True)
    os.makedirs(args.out, exist_ok=True)
    halves = {name: values.detach().half().cpu().numpy() for name, values in trainer.decoder.named().items()}
    names = sorted(halves)
    for part in range(2):  # each small enough to be carried
        np.savez(f"{args.out}/decoder-{part}.npz", **{name: halves[name] for name in names[part::2]})
    floats = {name: values.detach().float().cpu().numpy() for name, values in trainer.encoder.state_dict().items()}
    np.savez(f"{args.out}/encoder.npz", **floats)
    Path(f"{args.out}/log.json").write_text(json.dumps(log))
    for job in jobs:
        job.kill()


if __name__ == "__main__":
    main()
