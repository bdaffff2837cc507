"""Train small models to draft for Wisp Mini: they learn its probabilities for every token of an answer.

    python distil.py --teacher wisp-mini-q8_0.gguf --out drafts --seconds 230

All shapes learn from the same batches, so the teacher computes each batch once.  Every matrix, the embedding as
well, is trained for Q4_0 in the second half of the run.  What counts is how many of a draft's tokens the teacher
accepts: agreement.json has it for answers that the teacher itself gives to held-out questions.
"""

import argparse
import functools
import json
import os
import random
import time

import torch
import torch.nn.functional as F

import evaluate
import model as M
from generate_data import LOSS_BIT, ROW, SPECIALS, copy_tokenizer
from train import Muon, Pool, Workers, document_attention, unpack

TOP_P, TEMPERATURE = 0.95, 0.8
MOST_DRAFT = 7
ANSWER = 160  # tokens of an answer at most
AT_LEAST = 5  # steps, however short the time is


class Student:
    """One shape in training, with optimisers of its own."""

    def __init__(self, name, lr, embed_lr, device):
        self.name, self.c, self.lr, self.embed_lr = name, M.SHAPES[name], lr, embed_lr
        self.p = M.init(self.c, device)
        self.muon = Muon(self.p)
        rest = [self.p[k] for k in self.p if k not in M.LINEAR]
        self.adam = torch.optim.AdamW(rest, lr=embed_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=device == "cuda")

    def weights(self, quant):
        """What the forward pass uses."""
        return {**self.p, "embed": M.rounded(self.p["embed"], quant)}

    def step(self, scale):
        self.muon.step(self.lr * scale)
        for group in self.adam.param_groups:
            group["lr"] = self.embed_lr * scale
        self.adam.step()
        for v in self.p.values():
            v.grad = None

    @torch.no_grad()
    def final(self):
        """The weights as their Q4_0 file will have them."""
        return {k: M.fake_q4_0(v) if k in M.LINEAR or k == "embed" else v.detach() for k, v in self.p.items()}


def divergence(x, gain, embed, eps, teacher):
    """Kullback-Leibler divergence of the teacher's probabilities, and the share of tokens with the same argmax."""
    y = F.linear(M.rms(x, gain, eps), embed.to(x.dtype)).float()
    t = teacher.float()
    log_t = F.log_softmax(t, -1)
    loss = (log_t.exp() * (log_t - F.log_softmax(y, -1))).sum(-1).mean()
    return loss, (y.argmax(-1) == t.argmax(-1)).float().mean().detach()


def answered(rows, count):
    """Indices of `count` positions of a batch after which the assistant's tokens follow; few are repeated."""
    follows = F.pad(rows.int()[:, 1:] & LOSS_BIT != 0, (0, 1)).flatten()
    at = follows.nonzero().squeeze(1)
    return at[(torch.arange(count, device=at.device) + random.randrange(len(at))) % len(at)]


# --------------------------------------------------------------------------- agreement


@functools.cache
def noise_of(seed, position, vocab, device):
    """The noise of one sampled token: it depends on the seed and the position alone, as in Wisp."""
    g = torch.Generator().manual_seed(seed * 100_003 + position)
    return -torch.log(-torch.log(torch.rand(vocab, generator=g).clamp(1e-9, 1 - 1e-7))).to(device)


def pick(logits, noise):
    """Tokens: greedy without noise, else by temperature and top-p."""
    if noise is None:
        return logits.argmax(-1)
    p, order = (logits / TEMPERATURE).softmax(-1).sort(descending=True)
    out = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p >= TOP_P)
    return (logits / TEMPERATURE + noise).masked_fill(out, -torch.inf).argmax(-1)


class Judge:
    """The teacher's answers to held-out questions, greedy or sampled, and a draft model's share in them."""

    def __init__(self, c, p, prompts, end, device):
        self.c, self.p, self.prompts, self.end, self.device = c, p, prompts, end, device
        self.order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))

    @torch.no_grad()
    def logits(self, c, p, tokens, at):
        """Logits after positions (row, position) of right-padded rows."""
        tables = M.rope_table(c, tokens.shape[1], self.device, torch.float32)
        x = M.hidden(c, p, tokens, M.attend_causal, torch.float32, tables)
        return M.logits(c, p, x[at])

    def noise(self, i, position, sampled):
        return noise_of(i + 1, position, self.c["vocab"], self.device) if sampled else None

    def answers(self, sampled, deadline, rows=64):
        """Answers by prompt number; those that the time suffices for."""
        out = {}
        chunks = [self.order[first:first + rows] for first in range(0, len(self.order), rows)]  # of about the same length
        random.Random(2).shuffle(chunks)
        for chunk in chunks:
            if out and time.time() > deadline:
                break
            active = chunk
            texts = {i: list(self.prompts[i]) for i in active}
            while active:
                longest = max(len(texts[i]) for i in active)
                tokens = torch.tensor([texts[i] + [0] * (longest - len(texts[i])) for i in active], device=self.device)
                ends = [len(texts[i]) - 1 for i in active]
                y = self.logits(self.c, self.p, tokens, (torch.arange(len(active), device=self.device), torch.tensor(ends, device=self.device)))
                noise = torch.stack([self.noise(i, e, True) for i, e in zip(active, ends)]) if sampled else None
                for i, token in zip(active, pick(y, noise).tolist()):
                    texts[i].append(token)
                active = [i for i in active if texts[i][-1] != self.end and len(texts[i]) - len(self.prompts[i]) < ANSWER]
            out.update({i: texts[i][len(self.prompts[i]):] for i in chunk})
        return out

    def agreements(self, c, p, answers, sampled):
        """For each answer, whether the draft model has each of its tokens, given those before it."""
        found = {}
        for i, answer in answers.items():
            start = len(self.prompts[i]) - 1
            at = torch.arange(start, start + len(answer), device=self.device)
            y = self.logits(c, p, torch.tensor([self.prompts[i] + answer[:-1]], device=self.device), (torch.zeros_like(at), at))
            noise = torch.stack([self.noise(i, e, True) for e in at.tolist()]) if sampled else None
            found[i] = (pick(y, noise) == torch.tensor(answer, device=self.device)).tolist()
        return found


def tokens_a_round(agreements, most):
    """Tokens that a round with drafts of `most` tokens yields: the accepted ones, and one of the teacher's own."""
    rounds = tokens = 0
    for agrees in agreements.values():
        at = 1  # the prompt yields the first token
        while at < len(agrees):
            accepted = 0
            while accepted < most and at + accepted < len(agrees) and agrees[at + accepted]:
                accepted += 1
            at, rounds, tokens = at + accepted + 1, rounds + 1, tokens + min(accepted + 1, len(agrees) - at)
    return round(tokens / max(rounds, 1), 3)


def summary(agreements, skills):
    """Figures of one draft model."""
    by_skill = {}
    for i, agrees in agreements.items():
        by_skill.setdefault(skills[i], []).extend(agrees)
    everything = [x for agrees in by_skill.values() for x in agrees]
    share = lambda xs: round(sum(xs) / len(xs), 4)
    return {"answers": len(agreements), "tokens": len(everything), "agree": share(everything),
            "tokens_a_round": {k: tokens_a_round(agreements, k) for k in range(1, MOST_DRAFT + 1)},
            "by_skill": {k: share(v) for k, v in by_skill.items()}}


# --------------------------------------------------------------------------- training


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--teacher", required=True, help="GGUF file")
    ap.add_argument("--out", default="drafts")
    ap.add_argument("--shapes", default=",".join(k for k in M.SHAPES if k.startswith("draft")))
    ap.add_argument("--seconds", type=float, default=230, help="of the whole run")
    ap.add_argument("--judge-seconds", type=float, default=45, help="of these, for the figures at the end")
    ap.add_argument("--rows", type=int, default=32, help="rows of 2048 tokens in a batch")
    ap.add_argument("--answered", type=int, default=400, help="tokens of the assistant that count, for each row")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--embed-lr", type=float, default=3e-3)
    ap.add_argument("--probes", type=int, default=320, help="questions that the figures are of, at most")
    ap.add_argument("--attention", choices=["flex", "causal", "dense"], default="flex")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--seed", type=int, default=5000)
    args = ap.parse_args()
    t0 = time.time()
    deadline = t0 + args.seconds
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64  # one block for each shape, with and without gradients
    os.makedirs(args.out, exist_ok=True)

    path = os.path.join(args.out, "tokenizer.json")
    tokenizer, template = copy_tokenizer(path, args.teacher)
    eot, end = (tokenizer.token_to_id(SPECIALS[i]) for i in (0, 2))
    workers = Workers(args.out, path, args.seed, args.workers)
    try:
        c, teacher = M.load_gguf(args.teacher)
        teacher = {k: v.to(device) for k, v in teacher.items()}
        students = [Student(name, args.lr, args.embed_lr, device) for name in args.shapes.split(",")]
        train(args, c, teacher, students, workers, eot, dtype, device, t0, deadline - args.judge_seconds)
    finally:
        workers.stop()
    for s in students:
        M.save(s.final(), args.out, s.name, "float16")

    probes = evaluate.build_probes()
    random.Random(1).shuffle(probes)
    probes = probes[:args.probes]
    render = evaluate.make_renderer(template)
    prompts = [tokenizer.encode(render(p["messages"], p.get("tools")), add_special_tokens=False).ids for p in probes]
    judge = Judge(c, teacher, prompts, end, device)
    figures = {s.name: {"parameters": sum(v.numel() for v in s.p.values())} for s in students}
    for sampled, share in ((False, 0.4), (True, 0.8)):
        kind = "sampled" if sampled else "greedy"
        answers = judge.answers(sampled, deadline - args.judge_seconds * (1 - share))
        for s in students:
            figures[s.name][kind] = summary(judge.agreements(s.c, s.final(), answers, sampled), [p["skill"] for p in probes])
            print(s.name, kind, json.dumps({k: v for k, v in figures[s.name][kind].items() if k != "by_skill"}), flush=True)
        with open(os.path.join(args.out, "agreement.json"), "w") as f:
            json.dump(figures, f, indent=1)
    print(f"{time.time() - t0:.0f} s", flush=True)


def train(args, c, teacher, students, workers, eot, dtype, device, t0, deadline):
    """Train all students until the deadline."""
    compiled = not args.no_compile
    new_attention, block_fn = document_attention(args.attention, args.rows, device, compiled)
    loss_fn = torch.compile(divergence, dynamic=False) if compiled else divergence
    tables = M.rope_table(c, ROW, device, dtype)  # all shapes have the same head size
    one = torch.ones((), device=device)
    pool = Pool(workers.folder, 2_400_000 if device == "cuda" else 4000, device)
    while pool.size < 4 * args.rows:
        time.sleep(0.2)
        pool.refresh(32)
    print(f"first rows after {time.time() - t0:.1f} s", flush=True)
    log = open(os.path.join(args.out, "distil-log.jsonl"), "w")
    begun, step, fresh_rows = time.time(), 0, 0
    while step < AT_LEAST or time.time() < deadline:
        progress = (time.time() - begun) / max(deadline - begun, 1e-9) if step else 0.0
        scale = min(1, (step + 1) / 150) * (1.0 if progress < 0.25 else max(0.01, (1 - progress) / 0.75))
        quant = one if progress > 0.5 else None
        if step % 8 == 0:
            pool.refresh()
        rows, new = pool.batch(args.rows)
        tokens, _, _, docs = unpack(rows, eot)
        at = answered(rows, args.rows * args.answered)
        attend = new_attention(docs)
        with torch.no_grad():
            x = M.hidden(c, teacher, tokens, attend, dtype, tables, None, block_fn)
            target = M.logits(c, teacher, x.flatten(0, 1)[at])
        shown = {}
        for s in students:
            p = s.weights(quant)
            x = M.hidden(s.c, p, tokens, attend, dtype, tables, quant, block_fn)
            loss, agree = loss_fn(x.flatten(0, 1)[at], p["norm_out"], p["embed"], s.c["eps"], target)
            loss.backward()
            s.step(scale)
            shown[s.name] = (loss.detach(), agree)
        step, fresh_rows = step + 1, fresh_rows + new
        if step in (1, 3, 10, 30, 100) or step % 250 == 0:
            line = dict(step=step, seconds=round(time.time() - t0, 1), fresh=round(fresh_rows / step / args.rows, 3), lr=round(scale, 3))
            line.update({k: [round(float(v), 4) for v in pair] for k, pair in shown.items()})
            print(json.dumps(line), flush=True)
            log.write(json.dumps(line) + "\n")
            log.flush()
    log.close()


if __name__ == "__main__":
    main()
