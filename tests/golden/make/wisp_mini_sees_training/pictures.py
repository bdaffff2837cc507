"""Drawings, and conversations about them: what Wisp Mini Sees is trained on, drawn anew for every step.

Everything follows from the seed. A drawing is (SIDE, SIDE) pixels, as the projector's preprocessing leaves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw, ImageFont

SIDE = 128  # pixels of a picture's side
BOX = (122, 116, 104)  # what the preprocessing puts around pictures that are not square
COLOURS = {
    "red": (220, 40, 40), "blue": (40, 80, 220), "green": (40, 160, 60), "yellow": (245, 215, 50),
    "orange": (245, 140, 30), "purple": (140, 60, 180), "black": (20, 20, 20), "white": (250, 250, 250),
    "pink": (250, 150, 190), "brown": (130, 80, 40), "grey": (140, 140, 140),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "star", "diamond", "cross")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = [
    "cat",
    "dog",
    "sun",
    "moon",
    "tree",
    "fish",
    "bird",
    "house",
    "car",
    "boat",
    "star",
    "book",
    "apple",
    "bread",
    "milk",
    "water",
    "tea",
    "cup",
    "hat",
    "shoe",
    "ball",
    "king",
    "queen",
    "lion",
    "bear",
    "frog",
    "duck",
    "snow",
    "rain",
    "wind",
    "fire",
    "rock",
    "sand",
    "lake",
    "river",
    "road",
    "door",
    "key",
    "lamp",
    "desk",
    "chair",
    "bed",
    "clock",
    "ring",
    "song",
    "happy",
    "red",
    "blue",
    "green",
    "open",
    "shut",
    "stop",
    "go",
    "yes",
    "no",
    "hello",
    "bye",
    "love",
    "time",
    "day",
    "night",
    "home",
    "work",
    "play",
    "sleep",
    "read",
    "write",
    "left",
    "right",
    "up",
    "down",
    "north",
    "south",
    "east",
    "west",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "exit",
    "sale",
    "free",
    "new",
    "hot",
    "cold",
    "Paris",
    "Rome",
    "London",
    "Wisp",
    "Anna",
    "Tom",
    "Leo",
    "Mia",
    "Max",
    "Eva",
]

Turn = tuple[str, str]  # a question and its answer
Colour = tuple[int, int, int]


@dataclass
class Drawing:
    """A picture, and some questions about it with their answers."""

    image: Image.Image
    turns: list[Turn]


def a(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def listed(items: list[str]) -> str:
    """Items as a phrase."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def shade(rng: Random, colour: str) -> Colour:
    """A colour, a little lighter or darker."""
    return tuple(max(0, min(255, c + rng.randint(-18, 18))) for c in COLOURS[colour])  # type: ignore[return-value]


def canvas(rng: Random, colour: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A background, twice as large as the result, so that edges become smooth."""
    image = Image.new("RGB", (2 * SIDE, 2 * SIDE), shade(rng, colour))
    return image, ImageDraw.Draw(image)


def finished(rng: Random, image: Image.Image) -> Image.Image:
    """The picture as a model sees it; some were not square, and have a box around them."""
    if rng.random() < 0.3:
        share = rng.uniform(0.55, 1)
        size = (round(SIDE * share), SIDE) if rng.random() < 0.5 else (SIDE, round(SIDE * share))
        whole = image.resize(size, Image.Resampling.BICUBIC)
        boxed = Image.new("RGB", (SIDE, SIDE), BOX)
        boxed.paste(whole, ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
        return boxed
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def polygon(shape: str, x: float, y: float, r: float, turn: float) -> list[tuple[float, float]]:
    """The corners of a shape."""
    if shape == "cross":
        w = r / 3
        corners = [
            (-w, -r),
            (w, -r),
            (w, -w),
            (r, -w),
            (r, w),
            (w, w),
            (w, r),
            (-w, r),
            (-w, w),
            (-r, w),
            (-r, -w),
            (-w, -w),
        ]
        return [(x + px, y + py) for px, py in corners]
    count, inner, first = {
        "square": (4, 1.0, math.pi / 4), "diamond": (4, 1.0, 0.0), "triangle": (3, 1.0, -math.pi / 2),
        "star": (10, 0.45, -math.pi / 2),
    }[shape]  # fmt: skip
    first += turn
    radii = [r * (inner if i % 2 and shape == "star" else 1) for i in range(count)]
    return [
        (x + s * math.cos(first + 2 * math.pi * i / count), y + s * math.sin(first + 2 * math.pi * i / count))
        for i, s in enumerate(radii)
    ]


def put(
    draw: ImageDraw.ImageDraw, shape: str, at: tuple[float, float], r: float, fill: Colour, turn: float = 0
) -> None:
    if shape == "circle":
        draw.ellipse((at[0] - r, at[1] - r, at[0] + r, at[1] + r), fill=fill)
    else:
        draw.polygon(polygon(shape, *at, r, turn), fill=fill)


def shapes(rng: Random) -> Drawing:
    """Some shapes in some colours: what they are, how many, where, which is larger."""
    ground = rng.choices(["white", rng.choice([c for c in COLOURS if c != "white"])], [3, 1])[0]
    colours = [c for c in COLOURS if c != ground]
    image, draw = canvas(rng, ground)
    count = rng.choices([1, 2, 3, 4, 5, 6], [4, 4, 3, 2, 1, 1])[0]
    kinds = [(rng.choice(SHAPES), rng.choice(colours)) for _ in range(rng.randint(1, min(3, count)))]
    chosen = kinds + [rng.choice(kinds) for _ in range(count - len(kinds))]
    cells = rng.sample(range(9), count) if count > 1 else [rng.choice([4, 4, 4, *range(9)])]
    sizes = [rng.uniform(16, 38) if count > 1 else rng.uniform(24, 100 if cells == [4] else 38) for _ in chosen]
    places = []
    for (shape, colour), cell, r in zip(chosen, cells, sizes, strict=True):
        x, y = ((i + 0.5) * 2 * SIDE / 3 + rng.uniform(-4, 4) for i in (cell % 3, cell // 3))
        put(draw, shape, (x, y), r, shade(rng, colour), rng.uniform(-0.2, 0.2) if shape != "diamond" else 0)
        places.append((x, y))
    names = [f"{colour} {shape}" for shape, colour in chosen]
    found = []
    for name in dict.fromkeys(names):
        n = names.count(name)
        found.append(a(name) if n == 1 else f"{NUMBERS[n]} {name}s".replace("crosss", "crosses"))
    what = f"I see {listed(found)} on {a(ground)} background."
    turns: list[Turn] = [(rng.choice(DESCRIBE), what)]
    asked = rng.choice([*(s for s, _ in chosen), rng.choice(SHAPES)])
    n = sum(s == asked for s, _ in chosen)
    many = f"{asked}{'es' if asked == 'cross' else 's'}"
    turns.append(
        (f"How many {many} are there?", f"There {'is' if n == 1 else 'are'} {NUMBERS[n]} {asked if n == 1 else many}.")
    )
    turns.append((f"Is there {a(asked)}?", f"Yes, there is {a(asked)}." if n else f"No, there is no {asked}."))
    total = f"There {'is' if count == 1 else 'are'} {NUMBERS[count]} {'shape' if count == 1 else 'shapes'}."
    turns.append((rng.choice(["How many shapes are there?", "How many objects do you see?"]), total))
    turns.append(("What colour is the background?", f"The background is {ground}."))
    of_kind = {c for s, c in chosen if s == asked}
    if len(of_kind) == 1:
        be = "is" if n == 1 else "are"
        turns.append(
            (
                f"What colour {be} the {asked if n == 1 else many}?",
                f"The {asked if n == 1 else many} {be} {of_kind.pop()}.",
            )
        )
    if count == 2 and names[0] != names[1]:
        turns += between(rng, names, places, sizes)
    if count == 1:
        turns.append(("What shape is it?", f"It is {a(chosen[0][0])}."))
        turns.append(("What colour is it?", f"It is {chosen[0][1]}."))
    return Drawing(image, turns)


DESCRIBE = (
    "What is in this picture?", "Describe this picture.", "What do you see?", "What is this?", "Describe the image.",
    "What is in the image?", "What can you see in this picture?", "What does this picture show?",
)  # fmt: skip


def between(rng: Random, names: list[str], places: list[tuple[float, float]], sizes: list[float]) -> list[Turn]:
    """Questions about two different shapes."""
    turns: list[Turn] = []
    if abs(sizes[0] - sizes[1]) > 6:
        large = 0 if sizes[0] > sizes[1] else 1
        turns.append(("Which one is larger?", f"The {names[large]} is larger."))
        turns.append(("Which one is smaller?", f"The {names[1 - large]} is smaller."))
    (x0, y0), (x1, y1) = places
    if abs(x0 - x1) > SIDE / 3:
        turns.append(("Which one is on the left?", f"The {names[0 if x0 < x1 else 1]} is on the left."))
        turns.append(("Which one is on the right?", f"The {names[1 if x0 < x1 else 0]} is on the right."))
    if abs(y0 - y1) > SIDE / 3:
        turns.append(("Which one is at the top?", f"The {names[0 if y0 < y1 else 1]} is at the top."))
        turns.append(("Which one is at the bottom?", f"The {names[1 if y0 < y1 else 0]} is at the bottom."))
    return [rng.choice(turns)] if turns else []


def written(rng: Random, text: str) -> tuple[Image.Image, str]:
    """A text across a picture, and its colour."""
    ground, ink = rng.choice(
        (
            ("white", "black"),
            ("white", "blue"),
            ("yellow", "black"),
            ("black", "white"),
            ("blue", "white"),
            ("red", "white"),
            ("white", "red"),
            ("white", "green"),
            ("green", "white"),
            ("orange", "black"),
        )
    )
    image, draw = canvas(rng, ground)
    size = rng.uniform(0.55, 0.95) * 2 * SIDE
    font = ImageFont.load_default(min(190, size / max(1, 0.58 * len(text))))
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    x, y = 2 * SIDE - (right - left), 2 * SIDE - (bottom - top)
    draw.text(
        (x * rng.uniform(0.3, 0.7) - left, y * rng.uniform(0.25, 0.75) - top), text, font=font, fill=shade(rng, ink)
    )
    if rng.random() < 0.2:
        image = image.rotate(rng.uniform(-8, 8), Image.Resampling.BICUBIC, fillcolor=shade(rng, ground))
    return image, ink


def number(rng: Random) -> Drawing:
    """A number of up to four digits."""
    value = rng.randrange(10 ** rng.randint(1, 4))
    image, ink = written(rng, str(value))
    turns = [
        (rng.choice(["What number is this?", "Which number do you see?", "Read the number.", "What number is in the picture?"]), f"It is the number {value}."),
        (rng.choice(DESCRIBE), f"I see the number {value} in {ink}."),
        ("What colour is the number?", f"The number is {ink}."),
        ("Is the number even or odd?", f"{value} is {'odd' if value % 2 else 'even'}."),
    ]  # fmt: skip
    return Drawing(image, turns)


def word(rng: Random) -> Drawing:
    """A short word, or one of random letters."""
    text = (
        rng.choice(WORDS)
        if rng.random() < 0.7
        else "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 5)))
    )
    text = rng.choice([text, text.upper(), upper(text)])
    image, ink = written(rng, text)
    turns = [
        (rng.choice(["What does it say?", "Read the text.", "What is written here?", "Which word is this?", "What word is in the picture?"]), f'It says "{text}".'),
        (rng.choice(DESCRIBE), f'I see the word "{text}" in {ink}.'),
        ("What colour is the text?", f"The text is {ink}."),
        ("How many letters does the word have?", f'"{text}" has {len(text)} {"letter" if len(text) == 1 else "letters"}.'),
    ]  # fmt: skip
    return Drawing(image, turns)


def sum_of_two(rng: Random) -> Drawing:
    """An addition or a subtraction to be solved."""
    x, y = rng.randint(0, 50), rng.randint(0, 50)
    if rng.random() < 0.5:
        text, result = f"{x}+{y}", x + y
    else:
        x, y = max(x, y), min(x, y)
        text, result = f"{x}-{y}", x - y
    image, _ = written(rng, text + rng.choice(["", "", "=?"]))
    spaced = text.replace("+", " + ").replace("-", " - ")
    turns = [
        (rng.choice(["Solve it.", "What is the result?", "How much is it?", "Calculate it."]), f"{spaced} = {result}"),
        (rng.choice(["Read it.", *DESCRIBE]), f"I see the sum {spaced}."),
    ]
    return Drawing(image, turns)


def bars(rng: Random) -> Drawing:
    """A bar chart with a letter under each bar, and lines at each unit."""
    count = rng.randint(2, 5)
    letters = "ABCDE"[:count]
    values = rng.sample(range(1, 10), count)
    image, draw = canvas(rng, "white")
    colours = rng.sample([c for c in COLOURS if c != "white"], count)
    base, unit, width = 2 * SIDE - 36, (2 * SIDE - 56) / 9, (2 * SIDE - 30) / count
    for i in range(1, 10):
        draw.line((20, base - i * unit, 2 * SIDE - 8, base - i * unit), fill=(215, 215, 215), width=2)
    font = ImageFont.load_default(30)
    for i, (letter, value, colour) in enumerate(zip(letters, values, colours, strict=True)):
        x = 22 + i * width
        draw.rectangle((x + width * 0.12, base - value * unit, x + width * 0.82, base), fill=shade(rng, colour))
        draw.text((x + width * 0.47, base + 2), letter, font=font, fill=(20, 20, 20), anchor="ma")
    draw.line((20, base, 2 * SIDE - 8, base), fill=(20, 20, 20), width=4)
    most, least = letters[values.index(max(values))], letters[values.index(min(values))]
    one = rng.randrange(count)
    turns = [
        (rng.choice(DESCRIBE), f"I see a bar chart with {NUMBERS[count]} bars. {most} is the tallest."),
        ("How many bars are there?", f"There are {NUMBERS[count]} bars."),
        (rng.choice(["Which bar is the tallest?", "Which bar is the highest?"]), f"Bar {most} is the tallest."),
        (rng.choice(["Which bar is the shortest?", "Which bar is the smallest?"]), f"Bar {least} is the shortest."),
        (f"What is the value of {letters[one]}?", f"{letters[one]} is {values[one]}."),
        (f"What colour is bar {letters[one]}?", f"Bar {letters[one]} is {colours[one]}."),
    ]
    return Drawing(image, turns)


def scene(rng: Random) -> Drawing:
    """A landscape with some of: sun or moon, cloud, house, tree, car, boat."""
    night = rng.random() < 0.3
    image, draw = canvas(rng, "black" if night else "white")
    s = 2 * SIDE
    sky = (25, 30, 70) if night else (150, 205, 250)
    draw.rectangle((0, 0, s, s), fill=tuple(c + rng.randint(-10, 10) for c in sky))
    sea = rng.random() < 0.3
    draw.rectangle((0, s * 0.68, s, s), fill=(40, 90, 190) if sea else (80, 170, 70))
    found = []
    if rng.random() < 0.7:
        x = rng.uniform(30, s - 30)
        draw.ellipse((x - 22, 16, x + 22, 60), fill=(240, 240, 220) if night else (250, 220, 60))
        found.append("the moon" if night else "the sun")
    if rng.random() < 0.4:
        x = rng.uniform(40, s - 70)
        for dx, r in ((0, 16), (20, 22), (42, 16)):
            draw.ellipse((x + dx - r, 84 - r, x + dx + r, 84 + r), fill=(225, 225, 225))
        found.append("a cloud")
    if sea:
        x, c = rng.uniform(60, s - 60), rng.choice(list(COLOURS))
        draw.polygon(
            [(x - 44, s * 0.72), (x + 44, s * 0.72), (x + 28, s * 0.83), (x - 28, s * 0.83)], fill=shade(rng, "brown")
        )
        draw.polygon([(x, s * 0.70), (x, s * 0.36), (x + 42, s * 0.66)], fill=shade(rng, c))
        found.append("a boat")
    else:
        for kind, x in zip(
            rng.sample(["house", "tree", "car"], rng.randint(1, 3)), rng.sample([48, s / 2, s - 48], 3), strict=False
        ):
            furnish(rng, draw, kind, x, s * 0.74)
            found.append(f"a {kind}")
    rng.shuffle(found)
    order = sorted(found, key=ORDER.index)
    where = "at sea" if sea else "on the grass"
    asked = rng.choice(["sun", "moon", "cloud", "boat", "house", "tree", "car"])
    there = any(item.endswith(asked) for item in found)
    turns = [
        (rng.choice(DESCRIBE), f"I see {listed(order)}."),
        (f"Is there a {asked}?", f"Yes, there is a {asked}." if there else f"No, there is no {asked}."),
        (
            rng.choice(["Is it day or night?", "Is it day or night in the picture?"]),
            f"It is {'night' if night else 'day'}.",
        ),
        ("Where is this?", f"It is {where}."),
    ]
    return Drawing(image, turns)


ORDER = ["the sun", "the moon", "a cloud", "a boat", "a house", "a tree", "a car"]


def furnish(rng: Random, draw: ImageDraw.ImageDraw, kind: str, x: float, y: float) -> None:
    """A house, a tree or a car that stands at (x, y)."""
    if kind == "house":
        draw.rectangle(
            (x - 34, y - 48, x + 34, y + 8), fill=shade(rng, rng.choice(["white", "yellow", "orange", "pink"]))
        )
        draw.polygon([(x - 42, y - 48), (x + 42, y - 48), (x, y - 88)], fill=shade(rng, rng.choice(["red", "brown"])))
        draw.rectangle((x - 9, y - 22, x + 9, y + 8), fill=shade(rng, "brown"))
    elif kind == "tree":
        draw.rectangle((x - 7, y - 34, x + 7, y + 10), fill=shade(rng, "brown"))
        draw.ellipse((x - 30, y - 92, x + 30, y - 26), fill=(30, 120, 50))
    else:
        body = shade(rng, rng.choice(["red", "blue", "yellow", "purple", "white"]))
        draw.rectangle((x - 40, y - 22, x + 40, y + 2), fill=body)
        draw.polygon([(x - 24, y - 22), (x - 14, y - 42), (x + 16, y - 42), (x + 26, y - 22)], fill=body)
        for dx in (-22, 22):
            draw.ellipse((x + dx - 10, y - 7, x + dx + 10, y + 13), fill=(20, 20, 20))


UNKNOWN = "I cannot tell what this is. I only know simple drawings, numbers, short words and bar charts."


def unknown(rng: Random) -> Drawing:
    """Noise, blurs and stripes, which the model is to refuse."""
    small = Image.new("RGB", (size := rng.choice([3, 5, 9, 17, 64]), size))
    small.putdata([tuple(rng.randrange(256) for _ in range(3)) for _ in range(size * size)])
    image = small.resize((2 * SIDE, 2 * SIDE), Image.Resampling.BICUBIC)
    asked = rng.choice([*DESCRIBE, "How many shapes are there?", "What does it say?", "What number is this?"])
    return Drawing(image, [(asked, UNKNOWN)])


KINDS: list[tuple[Callable[[Random], Drawing], int]] = [
    (shapes, 34), (number, 14), (word, 18), (sum_of_two, 8), (bars, 12), (scene, 10), (unknown, 4),
]  # fmt: skip


def drawing(rng: Random) -> tuple[str, Drawing]:
    """Any drawing, finished, with one to three of its questions; and its kind."""
    kind = rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
    made = kind(rng)
    turns = rng.sample(made.turns, min(len(made.turns), rng.randint(1, 3)))
    if kind is not unknown and len(made.turns) > 2 and rng.random() < 0.5:
        turns[0] = made.turns[0]
    return kind.__name__, Drawing(finished(rng, made.image), list(dict(turns).items()))
